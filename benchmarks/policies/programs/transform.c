/* Transforms 8 by 8 blocks of a picture by sums and differences, there and back. */

typedef int value;

enum { SIDE = 512 };

static value picture[SIDE][SIDE];

#define PAIR(a, b) t = a + b, b = a - b, a = t
#define TILT(a, b, c, s) t = (a * c - b * s) >> 10, b = (a * s + b * c) >> 10, a = t

__attribute__((noinline)) static value line(value *v, int step, int rows, int next) {
  value most = 0;
  for (int row = 0; row < rows; row++, v += next) {
    value t, a = v[0], b = v[step], c = v[2 * step], d = v[3 * step];
    value e = v[4 * step], f = v[5 * step], g = v[6 * step], h = v[7 * step];
    value first = a, last = h, middle = d ^ e;
    PAIR(a, h), PAIR(b, g), PAIR(c, f), PAIR(d, e);
    TILT(h, e, 1004, 200), TILT(g, f, 851, 569);
    PAIR(a, d), PAIR(b, c), PAIR(a, b), PAIR(h, g), PAIR(e, f);
    TILT(d, c, 946, 392), TILT(h, f, 724, 724);
    v[0] = a >> 1, v[step] = h, v[2 * step] = d, v[3 * step] = f;
    v[4 * step] = b >> 1, v[5 * step] = e, v[6 * step] = c, v[7 * step] = g >> 1;
    if ((first ^ last) > middle)
      most = a > most ? a : most;
    else
      most ^= first + middle;
  }
  return most;
}

int printf(const char *, ...);

int main(void) {
  unsigned sum = 0;
  for (int i = 0; i < SIDE; i++)
    for (int j = 0; j < SIDE; j++)
      picture[i][j] = (i * 37 + j * 101) & 255;
  for (int pass = 0; pass < 900; pass++)
    for (int i = 0; i < SIDE; i += 8)
      for (int j = 0; j < SIDE; j += 8) {
        sum += (unsigned)line(&picture[i][j], 1, 8, SIDE);
        sum ^= (unsigned)line(&picture[i][j], SIDE, 8, 1);
        for (int k = 0; k < 8; k++)
          for (int l = 0; l < 8; l++)
            picture[i + k][j + l] &= 1023;
      }
  printf("%u\n", sum);
  return 0;
}
