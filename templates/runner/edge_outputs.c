/* Outputs: hashed, written and told. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "edge_runner.h"

static uint32_t rotate(uint32_t word, int bits)
{
    return word >> bits | word << (32 - bits);
}

/* SHA-256 (FIPS 180-4), one block of 64 bytes. */
static void sha256_block(uint32_t state[8], const uint8_t *block)
{
    static const uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
        0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
        0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
        0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
        0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
        0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
        0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
        0xc67178f2,
    };
    uint32_t w[64], v[8];

    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | block[4 * i + 1] << 16 | block[4 * i + 2] << 8 |
               block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) +
               (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
    memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t one = v[7] + (rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25)) +
                       ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[i] + w[i];
        uint32_t two = (rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22)) +
                       ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += one;
        v[0] = one + two;
    }
    for (int i = 0; i < 8; i++)
        state[i] += v[i];
}

static void sha256(const uint8_t *data, size_t size, char hex[65])
{
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    uint8_t last[128] = {0};
    size_t rest = size % 64, padded = rest < 56 ? 64 : 128;
    uint64_t bits = (uint64_t)size * 8;

    for (size_t done = 0; done < size - rest; done += 64)
        sha256_block(state, data + done);
    for (size_t i = 0; i < rest; i++)
        last[i] = data[size - rest + i];
    last[rest] = 0x80;
    for (int i = 1; i <= 8; i++, bits >>= 8)
        last[padded - i] = (uint8_t)bits;
    for (size_t done = 0; done < padded; done += 64)
        sha256_block(state, last + done);
    for (int i = 0; i < 64; i++)
        hex[i] = hex_digit(state[i / 8] >> (28 - i % 8 * 4));
    hex[64] = '\0';
}

/* Writes into --output and returns the file's name, NULL without the option. */
static char *write_output(int64_t sample, size_t index, const void *data, size_t bytes)
{
    if (!options.output)
        return NULL;
    char *name = text("%03d.output.%zu.bin", (int)sample, index);
    char *path = join(options.output, name);
    int file = open_file(path, true);
    if (file < 0 || !write_all(file, data, bytes) || close(file) != 0)
        fail("cannot write %s: %s", path, strerror(errno));
    free(path);
    return name;
}

void put_output(const struct output *output, int64_t sample, size_t index)
{
    const struct dtype *dtype = &dtypes[output->dtype];
    size_t bytes = dtype->bytes;
    char hash[65];

    for (size_t i = 0; i < output->rank; i++)
        bytes *= output->shape[i];
    sha256(output->data, bytes, hash);
    char *file = write_output(sample, index, output->data, bytes);
    put("{'event':'output','sample':#,'index':#,'name':$,'dtype':$,'shape':[", sample,
        (int64_t)index, output->name, dtype->name);
    put_list(output->shape, output->rank);
    put(",'file':$,'sha256':$}\n", file, hash);
    free(file);
}
