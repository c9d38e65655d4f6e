/* ascot.h: indexed directories.
 *
 * A directory holds records, a key and a value of any bytes, appended in bursts that are called epochs. It is
 * indexed while it is written, and a key's values are found in a few reads. Many processes may write one
 * directory together; they bring a transport (ascot_mpi.h for MPI).
 *
 *     ascot_writer *writer;
 *     if (ascot_writer_open("run.dir", "scheme=records key=8 value=48", NULL, &writer) != ASCOT_OK)
 *         fprintf(stderr, "%s\n", ascot_error_text());
 *     ascot_append(writer, &id, 8, &state, 48);
 *     ascot_end_epoch(writer, NULL);
 *     ascot_writer_close(writer);
 *
 * Errors. Every function returns ASCOT_OK or a code, and ascot_error_text() then tells the calling thread what
 * happened and what to do. The library never ends the process, and prints nothing.
 *
 * Handles. Writers, readers and values are closed once. A function that is given one that is closed, or something
 * else, returns ASCOT_INVALID and does nothing; so does one whose writer another call is using at that moment.
 * All other pointers must point to what they say, as ever in C.
 *
 * Threads. A writer may be used by any thread, by one at a time; a reader by any number at once; different handles by
 * different threads at once. A writer calls its transport only inside functions that are given this writer, in the calling thread: with MPI
 * started for MPI_THREAD_FUNNELED, call them from the main thread. The library starts threads of its own for
 * files; they call neither the program nor its transport.
 *
 * Order. Values of one key that one process appends in one epoch are read in that order.
 */
#ifndef ASCOT_H
#define ASCOT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ASCOT_VERSION "0.1.0"

/* What functions return. */
enum ascot_code {
    ASCOT_OK = 0,
    ASCOT_INVALID = 1,   /* an argument or option that cannot be; nothing was done */
    ASCOT_IO = 2,        /* a file or volume refused */
    ASCOT_NO_SPACE = 3,  /* the volume is full */
    ASCOT_MEMORY = 4,    /* the memory allowed is too little, or the system has none */
    ASCOT_EXISTS = 5,    /* a directory was to be made where something is; an empty one is taken */
    ASCOT_LOCKED = 6,    /* another process writes this directory */
    ASCOT_MISSING = 7,   /* no indexed directory, or not all of it */
    ASCOT_DAMAGED = 8,   /* a file holds other bytes than were written */
    ASCOT_NEWER = 9,     /* the directory was written by a newer version */
    ASCOT_PEER = 10,     /* another rank failed, is gone or silent */
    ASCOT_FAILED = 11,   /* this handle failed before */
    ASCOT_TRANSPORT = 12,/* the transport failed */
    ASCOT_STOPPED = 13,  /* the callback asked to stop */
    ASCOT_INTERNAL = 14  /* a fault of the library; please report it */
};

/* The last error of the calling thread, in words; "" if there was none. Good until its next call. */
const char *ascot_error_text(void);

/* The name of a code, such as "ASCOT_NO_SPACE". */
const char *ascot_code_name(int code);

/* The version of the library that is loaded. */
const char *ascot_version(void);

/* ------------------------------------------------------------------ transports
 *
 * What moves batches of bytes between the processes that write one directory. ascot_mpi.c fills it in for MPI; a
 * program may bring its own. Functions return a negative number for an error, and error() tells of it.
 */
#define ASCOT_TRANSPORT_ABI 1u
#define ASCOT_LANES 4u

typedef struct ascot_transport {
    uint32_t abi;  /* ASCOT_TRANSPORT_ABI */
    uint32_t rank; /* this process */
    uint32_t size; /* all processes */
    /* For each rank a number that is the same for ranks of one node; NULL: all are on one node. It is read
     * when the writer is opened. */
    const uint32_t *node_of_rank;
    void *state; /* the first argument of all functions */
    /* Begins to send; the bytes stay where they are until sent() gives their ticket. Does not wait. */
    int (*send)(void *state, uint32_t to, uint32_t lane, const void *bytes, size_t length, uint64_t ticket);
    /* 1 and the ticket of a batch that its receiver has taken, or 0. Does not wait. */
    int (*sent)(void *state, uint64_t *ticket);
    /* Takes the next batch of a lane, of at most `capacity` bytes: 1, its length and sender, or 0. Does not wait, not
     * even for the rest of a batch that has begun to come: it may write to `into` and return 0, and is then called
     * again with the same `into` until it returns 1. `into` stays until then, or for good where the transport is
     * released after a failure. Batches of two ranks on one lane keep their order; a lane whose batches are not
     * taken does not hold up others. */
    int (*receive)(void *state, uint32_t lane, void *into, size_t capacity, size_t *length, uint32_t *from);
    /* Waits a moment, at most so long, unless something has come. */
    int (*wait)(void *state, uint32_t microseconds);
    /* What the last error was; may be NULL. */
    const char *(*error)(void *state);
    /* Ends it: orderly is 1 if all has been said, 0 after a failure, when peers may be gone. May be NULL. */
    void (*release)(void *state, int orderly);
} ascot_transport;

/* ------------------------------------------------------------------ writing */

typedef struct ascot_writer ascot_writer;

/* What a writer has done and uses. Bytes; counts since it was opened. */
typedef struct ascot_stats {
    uint64_t memory_routing;   /* buffers of routing, allocated for good */
    uint64_t memory_logs;      /* what tables and logs may use */
    uint64_t memory_logs_peak; /* the most they used */
    uint64_t records;          /* records appended here */
    uint64_t batches_local;    /* batches to the representative on this node */
    uint64_t batches_wire;     /* batches to another node's representative */
    uint64_t batches_deliver;  /* batches to their destination */
    uint64_t batches_off_node; /* those of all that left the node */
    uint64_t bytes_off_node;   /* their bytes */
    uint64_t waits;            /* how often this rank had to wait for others */
} ascot_stats;

/* Opens a directory for writing; collective: every rank of the transport calls it with the same path and
 * options, but for memory, spare and patience. If one cannot open, or has other options, all are told at once.
 * `transport` is copied, and ended with the writer, or here if opening fails; NULL is for one process alone.
 *
 * Options are words `name=value` with spaces or commas between; sizes are bytes, or end in KiB, MiB, GiB.
 *
 *     scheme=records          records: a query reads the fewest blocks; pointers, ranks: less is sent
 *     key=8 value=48          bytes of every key and value, where they are all of one length
 *     memory=64MiB            all memory of this rank for the writer
 *     partitions=N            of the keys, at most one for each rank; otherwise as many as ranks, also when another
 *                             number of ranks goes on with a directory
 *     partition_by=hash       hash, or range: keys in order, for `ascot index range`
 *     attribute=NAME:BYTE:f64 a number in values that `ascot index range --where` asks for
 *     open=create             create: a new directory, or one that is empty or whose first epoch was never complete;
 *                             append: go on after the last complete epoch of a directory that is there;
 *                             auto: append if there is one, create if not
 *     rollback=N              with append or auto: epochs 0 to N - 1 stay, later ones are dropped, and the next is N:
 *                             for a run that starts again from the checkpoint it made before its epoch N
 *     append=yes              the same as open=append
 *     seed=0                  of the keys' hash
 *     auxiliary=cuckoo        of scheme ranks: cuckoo, or static (smaller)
 *     route=three-hop         three-hop, or direct
 *     batch=32KiB             bytes of a batch between ranks
 *     max_message=16KiB       the longest key and what travels with it; one process alone takes any
 *     spare=16                batches under way beside one for each connection
 *     ranks_per_node=N        act as if so many ranks were on a node
 *     patience=1800           seconds to wait while nothing comes from others; who has died is then named
 *
 * What is asked of a directory that is gone on with has to be so there (scheme, key, value, partition_by, attribute,
 * seed, auxiliary): ASCOT_INVALID if not. The number of ranks may change.
 */
int ascot_writer_open(const char *directory, const char *options, const ascot_transport *transport,
                      ascot_writer **writer);

/* Appends a record to the epoch. After ASCOT_INVALID nothing was taken and the writer goes on; after any other
 * error the epoch will not be complete, and ascot_end_epoch or ascot_writer_close tells all ranks. */
int ascot_append(ascot_writer *writer, const void *key, size_t key_length, const void *value,
                 size_t value_length);

/* Takes what others have sent. To be called now and then while a rank computes for long between appends, so
 * that the others need not wait. */
int ascot_progress(ascot_writer *writer);

/* Ends the epoch; collective. When it returns ASCOT_OK the epoch is on disk, complete and readable. If any rank
 * failed, all get an error, and the epoch does not count. `records` (or NULL) gets the records of all ranks. */
int ascot_end_epoch(ascot_writer *writer, uint64_t *records);

/* How many epochs are complete: the number of the one that is open. */
int ascot_writer_epochs(const ascot_writer *writer, uint64_t *epochs);

/* What it has done so far. */
int ascot_writer_stats(const ascot_writer *writer, ascot_stats *stats);

/* Closes and frees a writer; collective. Records since the last epoch's end become an epoch. The writer is freed
 * whatever is returned. NULL does nothing. */
int ascot_writer_close(ascot_writer *writer);

/* Frees a writer without the others; they are told. What is not in a complete epoch is lost. NULL does nothing. */
int ascot_writer_abandon(ascot_writer *writer);

/* ------------------------------------------------------------------ reading */

typedef struct ascot_reader ascot_reader;
typedef struct ascot_values ascot_values;

/* Opens a directory for reading: the epochs that are complete now. Option: memory=64MiB, 4 MiB at least; NULL for
 * none. */
int ascot_reader_open(const char *directory, const char *options, ascot_reader **reader);

/* Complete epochs; they are numbered from 0. */
int ascot_epochs(const ascot_reader *reader, uint64_t *epochs);

/* What has been read around since the reader was opened. Damaged filters and auxiliary tables cost reads, and no
 * value: they are no error, but say that the directory should be looked at (`ascot index verify`). How many times that
 * was, and the first in words ("" if none), good until the reader is closed; either may be NULL. */
int ascot_reader_warnings(const ascot_reader *reader, uint64_t *count, const char **first);

/* All values of a key, by epoch. A key that was never written has none, which is no error. All of them are read: where
 * they are more than the memory of the reader, that is ASCOT_MEMORY, and ascot_find finds them. */
int ascot_get(const ascot_reader *reader, const void *key, size_t key_length, ascot_values **values);

/* Those of one epoch; none if it is not complete. */
int ascot_get_at(const ascot_reader *reader, const void *key, size_t key_length, uint64_t epoch,
                 ascot_values **values);

/* How many values there are. */
size_t ascot_values_count(const ascot_values *values);

/* One of them; its bytes stay until the values are freed. Any of the last three may be NULL. The bytes of a value that
 * ascot_find left in the files are ASCOT_MEMORY; its epoch and length are told where `bytes` is NULL. */
int ascot_values_at(const ascot_values *values, size_t number, uint64_t *epoch, const void **bytes,
                    size_t *length);

/* All epochs. */
#define ASCOT_ALL_EPOCHS UINT64_MAX

/* The values of a key in all epochs (ASCOT_ALL_EPOCHS) or one, whatever their length: long ones are left in the files, to be
 * read part by part. The values may be used after the reader is closed. */
int ascot_find(const ascot_reader *reader, const void *key, size_t key_length, uint64_t epoch,
               ascot_values **values);

/* Reads bytes of a value, of ascot_find or ascot_get, from its byte `offset` on into a buffer of `capacity` bytes. `read`
 * gets their number, which is less than `capacity` only where the value ends. No byte is given whose checksum was not looked
 * at; of scheme pointers all of a long value is therefore read once before its first part. */
int ascot_value_read(const ascot_values *values, size_t number, uint64_t offset, void *into, size_t capacity,
                     size_t *read);

/* NULL does nothing. */
int ascot_values_free(ascot_values *values);

/* Is given each record; anything but 0 stops. The bytes are good only during the call. */
typedef int (*ascot_record_fn)(void *context, uint64_t epoch, const void *key, size_t key_length,
                               const void *value, size_t value_length);

/* Hands all records of all epochs to `each`, as they stand in the files. */
int ascot_iterate(const ascot_reader *reader, ascot_record_fn each, void *context);

/* Hands the records whose keys are at least `from` and below `upto` to `each`, by key and epoch. `from` of no bytes is
 * the least key; NULL for `upto` goes on to the greatest. Blocks outside are not read. */
int ascot_reader_range(const ascot_reader *reader, const void *from, size_t from_length, const void *upto,
                       size_t upto_length, ascot_record_fn each, void *context);

/* Is given a part of a record's value: bytes from `offset` on of `value_length`. Parts of a record follow each other; a short
 * value is one part, and so is one of no bytes. Anything but 0 stops. The bytes are good only during the call. */
typedef int (*ascot_part_fn)(void *context, uint64_t epoch, const void *key, size_t key_length, uint64_t value_length,
                             uint64_t offset, const void *part, size_t part_length);

/* As ascot_reader_range, for values of any length. */
int ascot_reader_range_parts(const ascot_reader *reader, const void *from, size_t from_length, const void *upto,
                             size_t upto_length, ascot_part_fn each, void *context);

/* Is given each value, with the number of its key; anything but 0 stops. The bytes are good only during the call. */
typedef int (*ascot_value_fn)(void *context, size_t number, uint64_t epoch, const void *value, size_t value_length);

/* All values of `count` keys, in the order of the keys and by epoch: read in the order of files, which is faster than one
 * by one. A key that was never written has none. */
int ascot_reader_get_many(const ascot_reader *reader, const void *const *keys, const size_t *key_lengths,
                          size_t count, ascot_value_fn each, void *context);

/* Frees a reader. NULL does nothing. */
int ascot_reader_close(ascot_reader *reader);

#ifdef __cplusplus
}
#endif

#endif
