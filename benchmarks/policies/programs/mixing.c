/* Mixes blocks of 16 words, all of which are live in the inner loop. */

typedef unsigned int word;

#define TURN(x, n) ((x) << (n) | (x) >> (32 - (n)))
#define MIX(a, b, c, d)                                                        \
  a += b, d = TURN(d ^ a, 13), c += d, b = TURN(b ^ c, 11), a ^= TURN(c, 7),   \
      d += b

static word blocks[1 << 12][16];

__attribute__((noinline)) static word mix(word *block, word key, int rounds) {
  word a = block[0], b = block[1], c = block[2], d = block[3];
  word e = block[4], f = block[5], g = block[6], h = block[7];
  word i = block[8], j = block[9], k = block[10], l = block[11];
  word m = block[12], n = block[13], o = block[14], p = block[15];
  for (int round = 0; round < rounds; round++) {
    MIX(a, e, i, m), MIX(b, f, j, n), MIX(c, g, k, o), MIX(d, h, l, p);
    MIX(a, f, k, p), MIX(b, g, l, m), MIX(c, h, i, n), MIX(d, e, j, o);
    if (a & 64)
      b += key, key = TURN(key, 3);
    else
      c ^= block[round & 15];
  }
  block[0] = a, block[1] = b, block[2] = c, block[3] = d;
  block[4] = e, block[5] = f, block[6] = g, block[7] = h;
  block[8] = i, block[9] = j, block[10] = k, block[11] = l;
  block[12] = m, block[13] = n, block[14] = o, block[15] = p;
  return a + f + k + p + key;
}

int printf(const char *, ...);

int main(void) {
  word sum = 0;
  for (int i = 0; i < 1 << 12; i++)
    for (int j = 0; j < 16; j++)
      blocks[i][j] = (word)(i * 16 + j) * 2654435761u;
  for (int pass = 0; pass < 600; pass++)
    for (int i = 0; i < 1 << 12; i++)
      sum = mix(blocks[i], sum, 20);
  printf("%u\n", sum);
  return 0;
}
