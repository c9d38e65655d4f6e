/* ascot.h: indexed directories, and streams of elements.
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
 * Errors. Every function returns ASCOT_OK or a code; ascot_error_text() then returns the error and its remedy for the
 * calling thread. The library never ends the process, and prints nothing.
 *
 * Handles. Close writers, readers and values once. A function that gets a closed handle, or another pointer, returns
 * ASCOT_INVALID and does nothing; so does a function whose writer is in use by another call.
 * All other pointers must be valid, as everywhere in C.
 *
 * Threads. One thread at a time may use a writer; any number of threads may use a reader at once; different threads may
 * use different handles at once. A writer calls its transport only inside functions that get this writer, in the
 * calling thread: if MPI was started for MPI_THREAD_FUNNELED, call them from the main thread. The library starts
 * threads of its own for files; they call neither the program nor its transport.
 *
 * Order. Values of one key that one process appends in one epoch are read in that order.
 */
#ifndef ASCOT_H
#define ASCOT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ASCOT_VERSION "0.1.0"

/* The codes that functions return. */
enum ascot_code {
    ASCOT_OK = 0,
    ASCOT_INVALID = 1,   /* an invalid argument or option; nothing was done */
    ASCOT_IO = 2,        /* an error of a file or volume */
    ASCOT_NO_SPACE = 3,  /* the volume is full */
    ASCOT_MEMORY = 4,    /* the memory allowed is too little, or the system is out of memory */
    ASCOT_EXISTS = 5,    /* cannot create the directory: the path exists and is not an empty directory */
    ASCOT_LOCKED = 6,    /* another process writes this directory */
    ASCOT_MISSING = 7,   /* no indexed directory, or files of it are missing */
    ASCOT_DAMAGED = 8,   /* a file holds other bytes than were written */
    ASCOT_NEWER = 9,     /* the directory was written by a newer version */
    ASCOT_PEER = 10,     /* another rank failed, is gone or silent */
    ASCOT_FAILED = 11,   /* this handle failed before */
    ASCOT_TRANSPORT = 12,/* the transport failed */
    ASCOT_STOPPED = 13,  /* the callback asked to stop */
    ASCOT_INTERNAL = 14  /* a fault of the library; please report it */
};

/* The text of the last error of the calling thread; "" if there was none. Valid until the next call of the thread. */
const char *ascot_error_text(void);

/* The name of a code, such as "ASCOT_NO_SPACE". */
const char *ascot_code_name(int code);

/* The version of the library that is loaded. */
const char *ascot_version(void);

/* ------------------------------------------------------------------ transports
 *
 * A transport moves batches of bytes between the processes that write one directory. ascot_mpi.c provides one for MPI;
 * a program may bring its own. Its functions return a negative number for an error; error() returns the text.
 */
#define ASCOT_TRANSPORT_ABI 1u
#define ASCOT_LANES 4u

typedef struct ascot_transport {
    uint32_t abi;  /* ASCOT_TRANSPORT_ABI */
    uint32_t rank; /* this process */
    uint32_t size; /* all processes */
    /* The number of the node of each rank; NULL: all ranks are on one node. ascot_writer_open reads it. */
    const uint32_t *node_of_rank;
    void *state; /* the first argument of all functions */
    /* Starts to send; the bytes stay valid until sent() returns their ticket. Does not wait. */
    int (*send)(void *state, uint32_t to, uint32_t lane, const void *bytes, size_t length, uint64_t ticket);
    /* Returns 1 and the ticket of a batch that its receiver has taken, or 0. Does not wait. */
    int (*sent)(void *state, uint64_t *ticket);
    /* Takes the next batch of a lane, at most `capacity` bytes: returns 1, its length and sender, or 0. Does not wait,
     * not even for the rest of a batch that has partly arrived: it may write to `into` and return 0; the library then
     * calls it again with the same `into` until it returns 1. `into` stays valid until then, and for ever if the
     * transport is released after a failure. Batches between two ranks on one lane keep their order; a lane whose
     * batches are not taken does not block other lanes. */
    int (*receive)(void *state, uint32_t lane, void *into, size_t capacity, size_t *length, uint32_t *from);
    /* Waits until something arrives, at most `microseconds`. */
    int (*wait)(void *state, uint32_t microseconds);
    /* Returns the text of the last error; may be NULL. */
    const char *(*error)(void *state);
    /* Releases the transport: orderly is 1 after a regular end, 0 after a failure, when peers may be gone. May be
     * NULL. */
    void (*release)(void *state, int orderly);
} ascot_transport;

/* ------------------------------------------------------------------ writing */

typedef struct ascot_writer ascot_writer;

/* Memory and work of a writer: bytes; counts since it was opened. */
typedef struct ascot_stats {
    uint64_t memory_routing;   /* buffers of routing, allocated for good */
    uint64_t memory_logs;      /* memory that tables and logs may use */
    uint64_t memory_logs_peak; /* the maximum that they used */
    uint64_t records;          /* records appended here */
    uint64_t batches_local;    /* batches to the representative on this node */
    uint64_t batches_wire;     /* batches to another node's representative */
    uint64_t batches_deliver;  /* batches to their destination */
    uint64_t batches_off_node; /* those of all that left the node */
    uint64_t bytes_off_node;   /* their bytes */
    uint64_t waits;            /* number of times that this rank waited for others */
} ascot_stats;

/* Opens a directory for writing; collective: every rank of the transport calls it with the same path and
 * options, except memory, spare and patience. If a rank cannot open it, or has other options, all ranks get an error.
 * The library copies `transport` and releases it with the writer, or here if opening fails; NULL: a single process.
 *
 * Options are `name=value`, separated by spaces or commas; sizes are bytes, or end in KiB, MiB, GiB.
 *
 *     scheme=records          records: a query reads the fewest blocks; pointers, ranks: fewer bytes are sent
 *     key=8 value=48          bytes of every key and value, if all have one length
 *     memory=64MiB            all memory of this rank for the writer
 *     partitions=N            partitions of the keys, at most one for each rank; default: one for each rank, also if
 *                             another number of ranks continues a directory
 *     partition_by=hash       hash, or range: keys in order, for `ascot index range`
 *     attribute=NAME:BYTE:f64 a number in values, for conditions of `ascot index range --where`
 *     open=create             create: a new directory, or one that is empty or whose first epoch was never complete;
 *                             append: continue after the last complete epoch of an existing directory;
 *                             auto: append if the directory exists, otherwise create
 *     rollback=N              with append or auto: epochs 0 to N - 1 stay, later ones are dropped, and the next is N:
 *                             for a job that restarts from the checkpoint before its epoch N
 *     append=yes              the same as open=append
 *     seed=0                  seed of the hash of keys
 *     auxiliary=cuckoo        auxiliary tables of scheme ranks: cuckoo, or static (smaller)
 *     route=three-hop         three-hop, or direct
 *     batch=32KiB             bytes of a batch between ranks
 *     max_message=16KiB       maximum bytes of a key and the bytes sent with it; a single process has no limit
 *     spare=16                batches under way in addition to one for each connection
 *     ranks_per_node=N        assume N ranks on each node
 *     patience=1800           seconds to wait for other ranks; the error then names the ranks that do not answer
 *
 * An existing directory must have the properties that the options ask for (scheme, key, value, partition_by, attribute,
 * seed, auxiliary); otherwise the result is ASCOT_INVALID. The number of ranks may change.
 */
int ascot_writer_open(const char *directory, const char *options, const ascot_transport *transport,
                      ascot_writer **writer);

/* Appends a record to the epoch. After ASCOT_INVALID the record was not taken and the writer continues; after any
 * other error the epoch cannot complete, and ascot_end_epoch or ascot_writer_close reports the error to all ranks. */
int ascot_append(ascot_writer *writer, const void *key, size_t key_length, const void *value,
                 size_t value_length);

/* Takes records that other ranks have sent. Call it now and then if a rank computes for long between appends, so
 * that the other ranks need not wait. */
int ascot_progress(ascot_writer *writer);

/* Ends the epoch; collective. When it returns ASCOT_OK the epoch is on disk, complete and readable. If any rank
 * failed, all ranks get an error, and the epoch does not count. `records` (or NULL) gets the records of all ranks. */
int ascot_end_epoch(ascot_writer *writer, uint64_t *records);

/* The number of complete epochs, which is the number of the open epoch. */
int ascot_writer_epochs(const ascot_writer *writer, uint64_t *epochs);

/* The memory and work of a writer so far. */
int ascot_writer_stats(const ascot_writer *writer, ascot_stats *stats);

/* Closes and frees a writer; collective. Records since the end of the last epoch become an epoch. The writer is freed
 * whatever the result is. NULL does nothing. */
int ascot_writer_close(ascot_writer *writer);

/* Frees the writer of one rank; the other ranks get an error. Records outside complete epochs are lost. NULL does
 * nothing. */
int ascot_writer_abandon(ascot_writer *writer);

/* ------------------------------------------------------------------ reading */

typedef struct ascot_reader ascot_reader;
typedef struct ascot_values ascot_values;

/* Opens a directory for reading: the epochs that are complete now. Option: memory=64MiB, at least 4 MiB; NULL for
 * no options. */
int ascot_reader_open(const char *directory, const char *options, ascot_reader **reader);

/* Complete epochs; they are numbered from 0. */
int ascot_epochs(const ascot_reader *reader, uint64_t *epochs);

/* Warnings since the reader was opened. Queries do without damaged filters and auxiliary tables: they need more reads
 * and lose no value. So this is no error, but run `ascot index verify` on the directory. `count` gets the number of
 * warnings, `first` the text of the first ("" if none), valid until the reader is closed; either may be NULL. */
int ascot_reader_warnings(const ascot_reader *reader, uint64_t *count, const char **first);

/* All values of a key, by epoch. A key that was never written has none, which is no error. All values are read: if they
 * exceed the memory of the reader, the result is ASCOT_MEMORY; use ascot_find then. */
int ascot_get(const ascot_reader *reader, const void *key, size_t key_length, ascot_values **values);

/* The values of a key in one epoch; none if the epoch is not complete. */
int ascot_get_at(const ascot_reader *reader, const void *key, size_t key_length, uint64_t epoch,
                 ascot_values **values);

/* The number of values. */
size_t ascot_values_count(const ascot_values *values);

/* One value; its bytes stay valid until the values are freed. Any of the last three may be NULL. If ascot_find left the
 * value in the files, the result is ASCOT_MEMORY unless `bytes` is NULL. */
int ascot_values_at(const ascot_values *values, size_t number, uint64_t *epoch, const void **bytes,
                    size_t *length);

/* All epochs. */
#define ASCOT_ALL_EPOCHS UINT64_MAX

/* The values of a key in all epochs (ASCOT_ALL_EPOCHS) or one, of any length: long values stay in the files;
 * ascot_value_read reads parts of them. The values may be used after the reader is closed. */
int ascot_find(const ascot_reader *reader, const void *key, size_t key_length, uint64_t epoch,
               ascot_values **values);

/* Reads bytes of a value of ascot_find or ascot_get, from its byte `offset` on, into a buffer of `capacity` bytes.
 * `read` gets their number, which is less than `capacity` only at the end of the value. Every byte is checked against
 * its checksum first; with scheme pointers the first part of a long value therefore reads all of it once. */
int ascot_value_read(const ascot_values *values, size_t number, uint64_t offset, void *into, size_t capacity,
                     size_t *read);

/* Frees values. NULL does nothing. */
int ascot_values_free(ascot_values *values);

/* Gets each record; a result other than 0 stops. The bytes are valid only during the call. */
typedef int (*ascot_record_fn)(void *context, uint64_t epoch, const void *key, size_t key_length,
                               const void *value, size_t value_length);

/* Hands all records of all epochs to `each`, in the order of the files. */
int ascot_iterate(const ascot_reader *reader, ascot_record_fn each, void *context);

/* Hands the records with keys from `from` to `end` (exclusive) to `each`, by key and epoch. A `from` of no bytes is the
 * smallest key; NULL for `end` means no upper bound. Blocks outside the range are not read. */
int ascot_reader_range(const ascot_reader *reader, const void *from, size_t from_length, const void *end,
                       size_t end_length, ascot_record_fn each, void *context);

/* Gets a part of the value of a record: bytes from `offset` on, of `value_length`. Parts of a record follow each other;
 * a short value is one part, and so is one of no bytes. A result other than 0 stops. The bytes are valid only during
 * the call. */
typedef int (*ascot_part_fn)(void *context, uint64_t epoch, const void *key, size_t key_length, uint64_t value_length,
                             uint64_t offset, const void *part, size_t part_length);

/* As ascot_reader_range, for values of any length. */
int ascot_reader_range_parts(const ascot_reader *reader, const void *from, size_t from_length, const void *end,
                             size_t end_length, ascot_part_fn each, void *context);

/* Gets each value, with the number of its key; a result other than 0 stops. The bytes are valid only during the
 * call. */
typedef int (*ascot_value_fn)(void *context, size_t number, uint64_t epoch, const void *value, size_t value_length);

/* All values of `count` keys, in the order of the keys and by epoch. They are read in the order of files, which is
 * faster than one by one. A key that was never written has none. */
int ascot_reader_get_many(const ascot_reader *reader, const void *const *keys, const size_t *key_lengths,
                          size_t count, ascot_value_fn each, void *context);

/* Frees a reader. NULL does nothing. */
int ascot_reader_close(ascot_reader *reader);

/* ------------------------------------------------------------------ streams of elements
 *
 * A file is read or written forward, one element of a fixed size at a time. The options name the way:
 *
 *     kind=plain                      a system call for each element
 *     kind=buffered                   blocks of 8 KiB (the default)
 *     kind=sized block=64KiB          blocks of any size
 *     kind=mapped block=1MiB          windows mapped to memory; the file must not change meanwhile
 *     kind=direct block=1MiB depth=8  blocks past the page cache, several in flight
 *
 *     ascot_stream_in in;
 *     uint32_t number;
 *     if (ascot_stream_open("numbers", "kind=sized block=64KiB", sizeof number, &in) == ASCOT_OK) {
 *         while (!ascot_stream_end(&in))
 *             if (ascot_stream_read_next(&in, &number) != ASCOT_OK) break;
 *         ascot_stream_close_in(&in, NULL);
 *     }
 *
 * The functions below move elements within the block that the library has lent, and call the library at its ends. One
 * thread at a time may use a stream. A stream must not be copied, and its fields are the library's.
 */
typedef struct ascot_stream_in {
    const unsigned char *next, *end;
    size_t element_bytes;
    void *handle;
} ascot_stream_in;

typedef struct ascot_stream_out {
    unsigned char *next, *end;
    size_t element_bytes;
    void *handle;
} ascot_stream_out;

/* Opens a file whose length is a multiple of element_bytes (1 byte to 1 MiB). */
int ascot_stream_open(const char *path, const char *options, size_t element_bytes, ascot_stream_in *stream);

/* Creates a file, or empties an existing one. */
int ascot_stream_create(const char *path, const char *options, size_t element_bytes, ascot_stream_out *stream);

/* Closes a stream. requests, unless NULL, gets the number of system calls, windows, or requests to the device. The
 * last block of a file that is written is written here; with sync, all bytes are on the device afterwards. */
int ascot_stream_close_in(ascot_stream_in *stream, uint64_t *requests);
int ascot_stream_close_out(ascot_stream_out *stream, int sync, uint64_t *requests);

/* The library's part of the functions below. */
int ascot_stream_next_in(ascot_stream_in *stream, void *element, int *ended);
int ascot_stream_next_out(ascot_stream_out *stream, const void *element);

/* Reads the next element; ASCOT_INVALID at the end of the stream. */
static inline int ascot_stream_read_next(ascot_stream_in *stream, void *element) {
    if (!stream->next || (size_t)(stream->end - stream->next) < stream->element_bytes)
        return ascot_stream_next_in(stream, element, NULL);
    memcpy(element, stream->next, stream->element_bytes);
    stream->next += stream->element_bytes;
    return ASCOT_OK;
}

/* 1 if no element is left, 0 if one is; a closed stream has ended. */
static inline int ascot_stream_end(ascot_stream_in *stream) {
    int ended = 1;
    if (stream->next != stream->end)
        return 0;
    return ascot_stream_next_in(stream, NULL, &ended) == ASCOT_OK ? ended : 1;
}

/* Appends an element. A block that is full is written at once. */
static inline int ascot_stream_write(ascot_stream_out *stream, const void *element) {
    if (!stream->next || (size_t)(stream->end - stream->next) <= stream->element_bytes)
        return ascot_stream_next_out(stream, element);
    memcpy(stream->next, element, stream->element_bytes);
    stream->next += stream->element_bytes;
    return ASCOT_OK;
}

#ifdef __cplusplus
}
#endif

#endif
