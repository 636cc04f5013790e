import wave

import numpy as np
import pytest
import soundfile

from zoo.audio import (
    LEVELS,
    STEP,
    Tones,
    band_power,
    batches,
    load_folder,
    to_levels,
    write_wav,
)

RATE = 8000


def sine(hz, samples=1024):
    return np.sin(2 * np.pi * hz * np.arange(samples) / RATE).astype(np.float32)


def are_levels(audio):
    return np.array_equal(audio / STEP, np.round(audio / STEP))


def test_a_wav_of_16_bits_is_read_back_as_it_was_written(tmp_path):
    audio = to_levels(np.random.default_rng(0).uniform(-1, 1, 500))
    write_wav(tmp_path / "a.wav", audio, RATE)
    with wave.open(str(tmp_path / "a.wav")) as file:
        shape = (file.getnchannels(), file.getsampwidth(), file.getframerate())
        found = np.frombuffer(file.readframes(500), "<i2")
    assert shape == (1, 2, RATE)
    np.testing.assert_array_equal(found * STEP, audio)
    np.testing.assert_array_equal(soundfile.read(tmp_path / "a.wav")[0], audio)


def test_what_is_too_loud_is_cut_off(tmp_path):
    write_wav(tmp_path / "loud.wav", np.array([2.0, -2.0, 0.0]), RATE)
    found, _ = soundfile.read(tmp_path / "loud.wav", dtype="int16")
    np.testing.assert_array_equal(found, [LEVELS // 2 - 1, -LEVELS // 2, 0])


def test_only_one_channel_is_written(tmp_path):
    with pytest.raises(ValueError, match=r"one dim, not shape \(2, 9\)"):
        write_wav(tmp_path / "a.wav", np.zeros((2, 9)), RATE)


def test_a_folder_is_its_files_in_whole_windows(tmp_path):
    (tmp_path / "below").mkdir()
    long, short = to_levels(0.5 * sine(300, 250)), to_levels(0.5 * sine(200, 110))
    write_wav(tmp_path / "a.wav", long, RATE)
    soundfile.write(tmp_path / "below" / "b.FLAC", short, RATE, format="FLAC")
    (tmp_path / "c.txt").write_text("not audio")
    found = load_folder(tmp_path, window=100, rate=RATE)
    assert len(found) == 3
    for i, expected in enumerate((long[:100], long[100:200], short[:100])):
        np.testing.assert_array_equal(found[i], expected)


def test_two_channels_become_their_mean(tmp_path):
    left, right = to_levels(np.full(64, 0.5)), to_levels(np.full(64, 0.25))
    both = np.stack([left, right], axis=1)
    soundfile.write(tmp_path / "a.wav", both, RATE, subtype="PCM_16")
    found = load_folder(tmp_path, window=64, rate=RATE)[0]
    np.testing.assert_array_equal(found, np.full(64, 0.375))


def test_a_folder_without_use_says_why(tmp_path):
    with pytest.raises(ValueError, match=r"there is no folder .*missing"):
        load_folder(tmp_path / "missing", window=10, rate=8000)
    for wrong in (0, -1):
        with pytest.raises(ValueError, match=f"are at least 1, not {wrong} and 8000"):
            load_folder(tmp_path, window=wrong, rate=8000)
    with pytest.raises(ValueError, match=r"no file \.flac or \.wav in"):
        load_folder(tmp_path, window=100, rate=RATE)
    write_wav(tmp_path / "a.wav", np.zeros(50), RATE)
    with pytest.raises(ValueError, match="has 100 samples, one window"):
        load_folder(tmp_path, window=100, rate=RATE)
    with pytest.raises(ValueError, match="has 8000 samples a second, wanted 16000"):
        load_folder(tmp_path, window=50, rate=16_000)


def test_tones_are_levels_and_the_same_for_the_same_seed():
    first, again, other = (Tones(8, 512, RATE, seed) for seed in (0, 0, 1))
    for i in range(8):
        assert are_levels(first[i])
        assert 0.001 < np.abs(first[i]).max() < 1
        np.testing.assert_array_equal(first[i], again[i])
        assert not np.array_equal(first[i], other[i])
    assert not np.array_equal(first[0], first[1])


def test_the_band_of_a_sine_is_the_loudest_and_rises_with_its_pitch():
    tones = [band_power(0.5 * sine(hz), 64, 16)[2:-2] for hz in (200, 800, 3000)]
    loudest = [np.unique(tone.argmax(axis=1)) for tone in tones]
    assert all(len(bands) == 1 for bands in loudest)
    assert np.diff(np.concatenate(loudest)).min() > 0


def test_ten_times_the_power_is_a_fifth_more():
    quiet, loud = (band_power(a * sine(1000), 64, 16) for a in (0.1, 0.1 * 10**0.5))
    np.testing.assert_allclose((loud - quiet)[2:-2].max(axis=1), 0.2, atol=1e-3)


def test_silence_is_the_lowest_power():
    np.testing.assert_array_equal(band_power(np.zeros(640), 64, 16), -0.5)


def test_a_frame_hears_the_samples_around_it_only():
    late = np.zeros(640, np.float32)
    late[400:] = sine(1000, 240)
    heard = (band_power(late, 64, 16) > -0.5).any(axis=1)
    np.testing.assert_array_equal(heard, np.arange(10) >= 5)


def test_more_bands_than_frequencies_are_refused():
    with pytest.raises(ValueError, match="16 bands are too many for frames of 16"):
        band_power(np.zeros(64), 8, 16)


def test_batches_are_windows_with_their_power_shuffled_by_the_seed():
    tones = Tones(6, 256, RATE, seed=0)
    first, again, other = (
        [next(found) for found in [batches(tones, 3, seed, 64, 8)] for _ in range(2)]
        for seed in (0, 0, 1)
    )
    seen = np.concatenate([batch["audio"] for batch in first])
    assert sorted(map(tuple, seen)) == sorted(tuple(tones[i]) for i in range(6))
    for a, b in zip(first, again, strict=True):
        assert a["features"].shape == (3, 4, 8)
        np.testing.assert_array_equal(
            a["features"][1], band_power(a["audio"][1], 64, 8)
        )
        np.testing.assert_array_equal(a["audio"], b["audio"])
    assert not np.array_equal(first[0]["audio"], other[0]["audio"])


def test_an_empty_batch_is_refused():
    with pytest.raises(ValueError, match="at least one window, not 0"):
        batches(Tones(4, 256, RATE, 0), 0, 0, 64, 8)


def test_a_file_that_is_no_audio_is_named(tmp_path):
    (tmp_path / "junk.wav").write_bytes(b"no header of a WAV file")
    with pytest.raises(ValueError, match=r"junk\.wav is no audio that can be read"):
        load_folder(tmp_path, window=10, rate=8000)


@pytest.mark.parametrize(
    ("hop", "bands", "words"),
    [
        (48, 4, "a window of 64 samples is not of whole frames of 48; give a hop"),
        (0, 4, "hop and bands are at least 1, not 0 and 4"),
        (16, 0, "hop and bands are at least 1, not 16 and 0"),
    ],
)
def test_frames_that_do_not_fill_a_window_are_refused(hop, bands, words):
    tones = Tones(4, window=64, rate=8000, seed=0)
    with pytest.raises(ValueError, match=words):
        batches(tones, batch=2, seed=0, hop=hop, bands=bands)
