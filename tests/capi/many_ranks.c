/* Ranks write a directory over MPI, or go on with one until it has so many epochs, then each looks up a share of the keys.
 * Usage: many_ranks DIRECTORY OPTIONS EPOCHS KEYS [MODE [RANK]]
 *
 * Modes: "die": the rank is killed in the middle of the last epoch. "quit": it abandons its writer there. "fill":
 * epochs are written until one fails, and every rank has to fail in the same one. "leave": the rank abandons its writer
 * right behind the first epoch's end. "differ": it opens with another batch. "cannot": with options that are none.
 * "vanish": its process ends in the middle of the last epoch, without a word to MPI, before the others take what it has
 * sent; they say what they get.
 */
#include <ascot_mpi.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VALUE_BYTES 48

static int rank, size;

static void stop(const char *what, int code)
{
    fprintf(stderr, "rank %d: %s: %s: %s\n", rank, what, ascot_code_name(code), ascot_error_text());
    fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static void fill(unsigned char *value, uint64_t key, uint64_t epoch)
{
    int i;

    for (i = 0; i < VALUE_BYTES; i++)
        value[i] = (unsigned char)(key * 31 + epoch * 7 + (uint64_t)i);
}

/* Keys move from rank to rank. */
static int append_epoch(ascot_writer *writer, uint64_t epoch, uint64_t keys, const char *mode, int who)
{
    unsigned char value[VALUE_BYTES];
    uint64_t key;

    if (mode && strcmp(mode, "vanish") == 0 && rank != who)
        sleep(1);
    for (key = 0; key < keys; key++) {
        int code;

        if ((int)((key + epoch * 3) % (uint64_t)size) != rank)
            continue;
        if (mode && rank == who && key > keys / 2) {
            if (strcmp(mode, "die") == 0)
                raise(SIGKILL);
            if (strcmp(mode, "vanish") == 0)
                _exit(0);
            return -1;
        }
        fill(value, key, epoch);
        code = ascot_append(writer, &key, sizeof key, value, VALUE_BYTES);
        if (code != ASCOT_OK)
            return code;
    }
    return ASCOT_OK;
}

static void tell(ascot_writer *writer)
{
    ascot_stats stats;
    uint64_t own[5], sums[5];

    ascot_writer_stats(writer, &stats);
    own[0] = stats.records;
    own[1] = stats.batches_off_node;
    own[2] = stats.bytes_off_node;
    own[3] = stats.batches_local;
    own[4] = stats.memory_routing;
    MPI_Reduce(own, sums, 5, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("records %llu off_node %llu bytes %llu local %llu memory %llu\n", (unsigned long long)sums[0],
               (unsigned long long)sums[1], (unsigned long long)sums[2], (unsigned long long)sums[3],
               (unsigned long long)sums[4]);
}

static void look_up(const char *path, uint64_t epochs, uint64_t keys)
{
    ascot_reader *reader;
    unsigned char expected[VALUE_BYTES];
    uint64_t key;
    int code = ascot_reader_open(path, NULL, &reader);

    if (code != ASCOT_OK)
        stop("ascot_reader_open", code);
    for (key = (uint64_t)rank; key < keys; key += (uint64_t)size * 13) {
        ascot_values *values;
        size_t i;

        code = ascot_get(reader, &key, sizeof key, &values);
        if (code != ASCOT_OK || ascot_values_count(values) != epochs)
            stop("ascot_get", code);
        for (i = 0; i < ascot_values_count(values); i++) {
            const void *bytes;
            size_t length;
            uint64_t epoch;

            ascot_values_at(values, i, &epoch, &bytes, &length);
            fill(expected, key, epoch);
            if (epoch != i || length != VALUE_BYTES || memcmp(bytes, expected, length) != 0)
                stop("another value than was written", ASCOT_OK);
        }
        ascot_values_free(values);
    }
    ascot_reader_close(reader);
}

/* Another rank is gone, so that nothing collective can be called any more, MPI_Finalize among it. */
static void report(ascot_writer *writer, int code)
{
    fprintf(stderr, "rank %d: %s: %s\n", rank, ascot_code_name(code), ascot_error_text());
    fflush(stderr);
    ascot_writer_close(writer);
    _exit(0);
}

static int fill_up(ascot_writer *writer, uint64_t keys)
{
    uint64_t epoch = 0, least, most;
    int code;

    for (;; epoch++) {
        append_epoch(writer, epoch, keys, NULL, 0);
        code = ascot_end_epoch(writer, NULL);
        if (code != ASCOT_OK)
            break;
    }
    fprintf(stderr, "rank %d: %s: %s\n", rank, ascot_code_name(code), ascot_error_text());
    MPI_Allreduce(&epoch, &least, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(&epoch, &most, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    ascot_writer_close(writer);
    if (rank == 0)
        printf("epochs %llu to %llu\n", (unsigned long long)least, (unsigned long long)most);
    return least != most;
}

/* One rank is given a word more than the others. All have to get an error, and soon. */
static int open_badly(const char *path, const char *options, const char *word, int who)
{
    ascot_transport transport;
    ascot_writer *writer;
    char all[1024];
    int code = ascot_mpi_transport(MPI_COMM_WORLD, &transport), opened, any = 0;

    snprintf(all, sizeof all, "%s%s%s", options, rank == who ? " " : "", rank == who ? word : "");
    if (code == ASCOT_OK)
        code = ascot_writer_open(path, all, &transport, &writer);
    fprintf(stderr, "rank %d: %s: %s\n", rank, ascot_code_name(code), ascot_error_text());
    opened = code == ASCOT_OK;
    MPI_Allreduce(&opened, &any, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return any != 0;
}

/* One rank is gone right behind an epoch's end. The others have to be told, whatever they wait for. */
static int leave(ascot_writer *writer, uint64_t keys, int who)
{
    int code;

    append_epoch(writer, 0, keys, NULL, 0);
    code = ascot_end_epoch(writer, NULL);
    if (code == ASCOT_OK && rank == who)
        code = ascot_writer_abandon(writer);
    else if (code == ASCOT_OK)
        code = ascot_end_epoch(writer, NULL);
    fprintf(stderr, "rank %d: %s: %s\n", rank, ascot_code_name(code), ascot_error_text());
    if (rank != who)
        ascot_writer_close(writer);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}

int main(int argc, char **argv)
{
    ascot_transport transport;
    ascot_writer *writer;
    uint64_t epochs, keys, epoch, records;
    const char *mode;
    int provided, code, who;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 5)
        MPI_Abort(MPI_COMM_WORLD, 2);
    epochs = strtoull(argv[3], NULL, 10);
    keys = strtoull(argv[4], NULL, 10);
    mode = argc > 5 ? argv[5] : NULL;
    who = argc > 6 ? atoi(argv[6]) : 0;
    if (mode && (strcmp(mode, "differ") == 0 || strcmp(mode, "cannot") == 0))
        return open_badly(argv[1], argv[2], strcmp(mode, "differ") == 0 ? "batch=8KiB" : "batch=lots", who);
    code = ascot_mpi_transport(MPI_COMM_WORLD, &transport);
    if (code == ASCOT_OK)
        code = ascot_writer_open(argv[1], argv[2], &transport, &writer);
    if (code != ASCOT_OK)
        stop("ascot_writer_open", code);
    if (mode && strcmp(mode, "leave") == 0)
        return leave(writer, keys, who);
    if (mode && strcmp(mode, "fill") == 0) {
        code = fill_up(writer, keys);
        MPI_Finalize();
        return code;
    }
    code = ascot_writer_epochs(writer, &epoch);
    if (code != ASCOT_OK)
        stop("ascot_writer_epochs", code);
    for (; epoch < epochs; epoch++) {
        code = append_epoch(writer, epoch, keys, epoch + 1 == epochs ? mode : NULL, who);
        if (code == -1) {
            ascot_writer_abandon(writer);
            sleep(2);
            MPI_Abort(MPI_COMM_WORLD, 4);
        }
        if (code == ASCOT_OK)
            code = ascot_end_epoch(writer, &records);
        if (code != ASCOT_OK && mode && strcmp(mode, "vanish") == 0)
            report(writer, code);
        if (code != ASCOT_OK)
            stop("epoch", code);
        if (records != keys)
            stop("records are missing", ASCOT_OK);
    }
    tell(writer);
    code = ascot_writer_close(writer);
    if (code != ASCOT_OK)
        stop("ascot_writer_close", code);
    MPI_Barrier(MPI_COMM_WORLD);
    look_up(argv[1], epochs, keys);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("all values found\n");
    MPI_Finalize();
    return 0;
}
