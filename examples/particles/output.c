/* output.c: dumps of all particles, one of two ways.
 *
 *   files   DIRECTORY/epoch-0000.rank-0000: the records of one rank, in writes of 1 MiB
 *   index   an indexed directory: the particle's number is the key, its state the value
 *
 * Both are durable when a dump returns.
 */
#include "particles.h"

#include <ascot_mpi.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WRITE_BYTES ((size_t)1 << 20)

struct output {
    ascot_writer *writer; /* NULL: files */
    char directory[4096];
    int rank, epoch;
    record *buffer;
    double seconds;
};

static void check(int code, const char *what)
{
    if (code != ASCOT_OK)
        fail("%s: %s", what, ascot_error_text());
}

static void open_index(output *to, const char *options)
{
    ascot_transport transport;
    char all[1024];

    snprintf(all, sizeof all, "key=8 value=%zu %s", STATE_BYTES, options);
    check(ascot_mpi_transport(MPI_COMM_WORLD, &transport), "ascot_mpi_transport");
    check(ascot_writer_open(to->directory, all, &transport, &to->writer), "ascot_writer_open");
}

output *output_open(const char *kind, const char *directory, const char *options)
{
    output *to = allocate(1, sizeof *to);
    double began = MPI_Wtime();

    MPI_Comm_rank(MPI_COMM_WORLD, &to->rank);
    snprintf(to->directory, sizeof to->directory, "%s", directory);
    if (strcmp(kind, "index") == 0) {
        open_index(to, options);
    } else {
        to->buffer = allocate(WRITE_BYTES, 1);
        if (to->rank == 0 && mkdir(directory, 0777) != 0 && errno != EEXIST)
            fail("cannot make %s: %s", directory, strerror(errno));
        MPI_Barrier(MPI_COMM_WORLD);
    }
    to->seconds += MPI_Wtime() - began;
    return to;
}

static void put(int file, const void *bytes, size_t length)
{
    const char *at = bytes;

    while (length > 0) {
        ssize_t put = write(file, at, length);

        if (put < 0)
            fail("cannot write a dump: %s", strerror(errno));
        at += put;
        length -= (size_t)put;
    }
}

static void dump_file(output *to, const population *all)
{
    const size_t most = WRITE_BYTES / sizeof(record);
    char path[4200];
    size_t i, held = 0;
    int file;

    snprintf(path, sizeof path, "%s/epoch-%04d.rank-%04d", to->directory, to->epoch, to->rank);
    file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (file < 0)
        fail("cannot make %s: %s", path, strerror(errno));
    for (i = 0; i < all->count; i++) {
        to->buffer[held++] = record_of(&all->all[i]);
        if (held == most) {
            put(file, to->buffer, held * sizeof(record));
            held = 0;
        }
    }
    put(file, to->buffer, held * sizeof(record));
    if (fsync(file) != 0 || close(file) != 0)
        fail("cannot finish %s: %s", path, strerror(errno));
}

static void dump_index(output *to, const population *all)
{
    size_t i;

    for (i = 0; i < all->count; i++) {
        record one = record_of(&all->all[i]);

        check(ascot_append(to->writer, &one.id, sizeof one.id, one.state, STATE_BYTES), "ascot_append");
    }
    check(ascot_end_epoch(to->writer, NULL), "ascot_end_epoch");
}

void output_dump(output *to, const population *all)
{
    double began = MPI_Wtime();

    if (to->writer)
        dump_index(to, all);
    else
        dump_file(to, all);
    MPI_Barrier(MPI_COMM_WORLD);
    to->epoch++;
    to->seconds += MPI_Wtime() - began;
}

static void tell(const output *to)
{
    ascot_stats stats;
    uint64_t own[3], sums[3];

    check(ascot_writer_stats(to->writer, &stats), "ascot_writer_stats");
    own[0] = stats.batches_off_node;
    own[1] = stats.bytes_off_node;
    own[2] = stats.memory_routing;
    MPI_Reduce(own, sums, 3, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (to->rank == 0)
        printf("between nodes: %llu batches, %.1f MB; %.1f MB of buffers in all ranks\n",
               (unsigned long long)sums[0], (double)sums[1] / 1e6, (double)sums[2] / 1e6);
}

void output_close(output *to)
{
    double began = MPI_Wtime();

    if (to->writer) {
        tell(to);
        check(ascot_writer_close(to->writer), "ascot_writer_close");
    }
    to->writer = NULL;
    to->seconds += MPI_Wtime() - began;
}

double output_seconds(const output *to)
{
    return to->seconds;
}
