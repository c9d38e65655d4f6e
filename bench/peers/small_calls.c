/* Reads and writes 512 bytes at random offsets of eight files of 16 MiB, COUNT times: small_calls COUNT.
   Half of the calls read. The offsets are the same every time. */
#define _FILE_OFFSET_BITS 64
#define _XOPEN_SOURCE 700
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { FILES = 8, BLOCK = 512, BLOCKS = 1 << 15 };

int main(int count, char **words) {
    int files[FILES];
    char name[32], block[BLOCK] = {0};
    uint64_t state = 1;
    if (count != 2) return 2;
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "calls.%d", i);
        files[i] = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
        if (files[i] < 0 || ftruncate(files[i], (off_t)BLOCKS * BLOCK) || unlink(name)) return 1;
    }
    for (long left = atol(words[1]); left > 0; left--) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        int file = files[(state >> 60) % FILES];
        off_t offset = (off_t)((state >> 33) % BLOCKS) * BLOCK;
        ssize_t moved = state >> 63 ? pwrite(file, block, BLOCK, offset) : pread(file, block, BLOCK, offset);
        if (moved != BLOCK) return 1;
    }
    return 0;
}
