// A shuffle over plain TCP: processes stand for nodes, read their shares of a file, and append what they receive to files.
//
//     tcp_shuffle INPUT DIR NODES PARTITIONS THREADS group|move
//
// group: records of 100 bytes are grouped by partition (the first two bytes of the key, which must be spread evenly) and
//        go to the node of the partition; each thread reads, groups and sends one chunk after another
// move:  bytes are not looked at: sendfile takes equal shares to all nodes
//
// Each thread has a connection to each node, and each connection a thread that receives. Bytes for the own node go to its
// files directly. The time ends when all files are durable. Prints seconds, processor seconds and bytes received as JSON.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RECORD = 100, CHUNK = 80000 * RECORD, BLOCK = 1 << 20, NODES_MAX = 16, PARTITIONS_MAX = 4096, THREADS_MAX = 16 };

struct Header {
    uint32_t partition, bytes;
};

static const char *input_path, *dir;
static int nodes, partitions, threads, is_grouping, node;
static off_t total;
static int listeners[NODES_MAX];
static struct sockaddr_in addresses[NODES_MAX];

// The files of this node. In `move`, each thread that receives has one.
static int files[PARTITIONS_MAX];
static _Atomic off_t ends[PARTITIONS_MAX];
static _Atomic off_t next_chunk;
static _Atomic long long *received;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static off_t share_end(int of) { return total / RECORD * of / nodes * RECORD; }

static void append(int file, const char *bytes, size_t length) {
    off_t at = atomic_fetch_add(&ends[file], (off_t)length);
    atomic_fetch_add(received, (long long)length);
    while (length) {
        ssize_t done = pwrite(files[file], bytes, length, at);
        if (done < 0) fail("pwrite");
        bytes += done, at += done, length -= (size_t)done;
    }
}

static int receive(int from, void *into, size_t length) {
    char *at = into;
    while (length) {
        ssize_t got = recv(from, at, length, 0);
        if (got < 0) fail("recv");
        if (got == 0) return 0;
        at += got, length -= (size_t)got;
    }
    return 1;
}

static void *receiver(void *number) {
    int from = accept(listeners[node], NULL, NULL), own = (int)(intptr_t)number;
    if (from < 0) fail("accept");
    char *buffer = malloc(BLOCK);
    struct Header header;
    if (is_grouping) {
        while (receive(from, &header, sizeof header)) {
            for (size_t left = header.bytes; left;) {
                size_t part = left < BLOCK ? left : BLOCK;
                if (!receive(from, buffer, part)) fail("a connection ended early");
                append((int)header.partition, buffer, part);
                left -= part;
            }
        }
    } else {
        for (ssize_t got; (got = recv(from, buffer, BLOCK, 0)) != 0;) {
            if (got < 0) fail("recv");
            append(own, buffer, (size_t)got);
        }
    }
    free(buffer);
    close(from);
    return NULL;
}

static int connected(int to) {
    int out = socket(AF_INET, SOCK_STREAM, 0);
    if (out < 0 || connect(out, (struct sockaddr *)&addresses[to], sizeof addresses[to])) fail("connect");
    return out;
}

static void send_piece(int out, struct Header header, char *bytes) {
    struct iovec parts[2] = {{&header, sizeof header}, {bytes, header.bytes}};
    int first = 0;
    while (first < 2) {
        ssize_t sent = writev(out, parts + first, 2 - first);
        if (sent < 0) fail("writev");
        while (first < 2 && (size_t)sent >= parts[first].iov_len) sent -= (ssize_t)parts[first++].iov_len;
        if (first < 2) parts[first].iov_base = (char *)parts[first].iov_base + sent, parts[first].iov_len -= (size_t)sent;
    }
}

static int partition_of(const unsigned char *record) { return ((record[0] << 8 | record[1]) * partitions) >> 16; }

static void *grouping_sender(void *ignored) {
    (void)ignored;
    int outs[NODES_MAX], in = open(input_path, O_RDONLY);
    if (in < 0) fail(input_path);
    for (int to = 0; to < nodes; to++) outs[to] = to == node ? -1 : connected(to);
    char *chunk = malloc(CHUNK), *grouped = malloc(CHUNK);
    size_t *starts = malloc(((size_t)partitions + 1) * sizeof *starts);
    off_t end = share_end(node + 1), at;
    while ((at = atomic_fetch_add(&next_chunk, CHUNK)) < end) {
        size_t length = end - at < CHUNK ? (size_t)(end - at) : CHUNK, got = 0;
        while (got < length) {
            ssize_t more = pread(in, chunk + got, length - got, at + (off_t)got);
            if (more <= 0) fail("pread");
            got += (size_t)more;
        }
        memset(starts, 0, ((size_t)partitions + 1) * sizeof *starts);
        for (size_t one = 0; one < length; one += RECORD) starts[partition_of((unsigned char *)chunk + one) + 1] += RECORD;
        for (int part = 0; part < partitions; part++) starts[part + 1] += starts[part];
        for (size_t one = 0; one < length; one += RECORD) {
            size_t *to = &starts[partition_of((unsigned char *)chunk + one)];
            memcpy(grouped + *to, chunk + one, RECORD);
            *to += RECORD;
        }
        // Each start is now the end of its partition. Nodes begin with different partitions.
        for (int turn = 0; turn < partitions; turn++) {
            int part = (turn + node) % partitions;
            size_t begin = part ? starts[part - 1] : 0, size = starts[part] - begin;
            if (part % nodes == node) append(part, grouped + begin, size);
            else send_piece(outs[part % nodes], (struct Header){(uint32_t)part, (uint32_t)size}, grouped + begin);
        }
    }
    for (int to = 0; to < nodes; to++) if (to != node) close(outs[to]);
    return NULL;
}

static void *moving_sender(void *number) {
    int to = (int)(intptr_t)number / threads, own = (int)(intptr_t)number % threads, in = open(input_path, O_RDONLY);
    if (in < 0) fail(input_path);
    off_t from = share_end(node), share = share_end(node + 1) - from;
    off_t at = from + share * (to * threads + own) / (nodes * threads);
    off_t end = from + share * (to * threads + own + 1) / (nodes * threads);
    int file = nodes * threads + own, out = to == node ? files[file] : connected(to);
    while (at < end) {
        size_t length = end - at < BLOCK ? (size_t)(end - at) : BLOCK;
        ssize_t sent = sendfile(out, in, &at, length);
        if (sent <= 0) fail("sendfile");
        if (to == node) atomic_fetch_add(received, sent);
    }
    if (to != node) close(out);
    return NULL;
}

static void run_node(void) {
    int file_count = is_grouping ? partitions : (nodes + 1) * threads, receivers = (nodes - 1) * threads;
    int senders = is_grouping ? threads : nodes * threads;
    pthread_t running[2 * NODES_MAX * THREADS_MAX];
    char name[4096];
    for (int file = 0; file < file_count; file++) {
        files[file] = -1;
        if (is_grouping && file % nodes != node) continue;
        snprintf(name, sizeof name, "%s/node-%d-%d", dir, node, file);
        if ((files[file] = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600)) < 0) fail(name);
    }
    atomic_store(&next_chunk, share_end(node));
    for (int one = 0; one < receivers; one++) pthread_create(&running[one], NULL, receiver, (void *)(intptr_t)one);
    for (int one = 0; one < senders; one++)
        pthread_create(&running[receivers + one], NULL, is_grouping ? grouping_sender : moving_sender, (void *)(intptr_t)one);
    for (int one = 0; one < receivers + senders; one++) pthread_join(running[one], NULL);
    for (int file = 0; file < file_count; file++) if (files[file] >= 0 && fdatasync(files[file])) fail("fdatasync");
}

int main(int count, char **words) {
    if (count != 7) return fprintf(stderr, "tcp_shuffle INPUT DIR NODES PARTITIONS THREADS group|move\n"), 2;
    input_path = words[1], dir = words[2], nodes = atoi(words[3]), partitions = atoi(words[4]), threads = atoi(words[5]);
    is_grouping = !strcmp(words[6], "group");
    if (nodes < 1 || nodes > NODES_MAX || partitions < 1 || partitions > PARTITIONS_MAX || threads < 1 ||
        threads > THREADS_MAX) return fprintf(stderr, "tcp_shuffle: too many nodes, partitions or threads\n"), 2;
    struct stat facts;
    if (stat(input_path, &facts)) fail(input_path);
    total = facts.st_size / RECORD * RECORD;
    received = mmap(NULL, sizeof *received, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int one = 0; one < nodes; one++) {
        socklen_t length = sizeof addresses[one];
        addresses[one] = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 39 + (unsigned)one)};
        listeners[one] = socket(AF_INET, SOCK_STREAM, 0);
        if (listeners[one] < 0 || bind(listeners[one], (struct sockaddr *)&addresses[one], length) ||
            listen(listeners[one], NODES_MAX * THREADS_MAX) ||
            getsockname(listeners[one], (struct sockaddr *)&addresses[one], &length)) fail("listen");
    }
    struct timespec began, ended;
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (node = 0; node < nodes; node++) {
        pid_t child = fork();
        if (child < 0) fail("fork");
        if (child == 0) {
            run_node();
            exit(0);
        }
    }
    int status, bad = 0;
    while (wait(&status) > 0) bad |= status;
    clock_gettime(CLOCK_MONOTONIC, &ended);
    struct rusage used;
    getrusage(RUSAGE_CHILDREN, &used);
    double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                 (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    double seconds = (double)(ended.tv_sec - began.tv_sec) + (double)(ended.tv_nsec - began.tv_nsec) / 1e9;
    printf("{\"seconds\": %.4f, \"cpu\": %.4f, \"bytes\": %lld}\n", seconds, cpu, *received);
    return bad != 0;
}
