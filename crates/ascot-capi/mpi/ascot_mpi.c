/* ascot_mpi.c: a transport over MPI.
 *
 *   send      MPI_Issend: it is done when the receiver has matched it, which is all the flow control there is
 *   sent      MPI_Testany over what is under way
 *   receive   MPI_Improbe for one lane, which is the tag; then MPI_Imrecv, and MPI_Test until all of it is there
 *
 * Nothing here waits for another rank: the rest of a long message never comes where its sender died after the head
 * of it, and then the writer has to find that out by its patience, instead of being held in MPI.
 *
 * Ranks that share a node's memory (MPI_Comm_split_type) talk over a communicator of that node, the others over
 * one of all ranks, so what stays on a node goes through shared memory whatever the network. The two are
 * copies of the program's, so nothing meets the program's own messages. A pair of ranks uses one of them only,
 * which keeps the order of their batches.
 *
 * Long synchronous messages stay with the sender until they are matched, so MPI holds no more than a first
 * piece of each batch that waits, and there are few batches for each connection.
 */
#include "ascot_mpi.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Calls of wait in a row that only yield, before it sleeps. */
#define YIELDS 200
#define SLEEP_NANOSECONDS 50000L

/* A batch of a lane that has begun to come. */
typedef struct {
    MPI_Request request;
    int coming;
    int bytes;
    uint32_t from;
} mpi_arrival;

typedef struct {
    MPI_Comm all;
    MPI_Comm node;
    int rank;
    int size;
    uint32_t *node_of_rank; /* the lowest rank of each one's node */
    int *rank_on_node;      /* the rank of each in `node`, or MPI_UNDEFINED */
    int *rank_of_node;      /* and back */
    MPI_Request *requests;  /* under way, without gaps */
    uint64_t *tickets;
    int under_way;
    int room;
    mpi_arrival arrivals[ASCOT_LANES];
    int node_first; /* which communicator is looked at first, in turn, so that none starves */
    int idle;
    char error[MPI_MAX_ERROR_STRING + 64];
} mpi_state;

static int failed(mpi_state *state, const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;

    MPI_Error_string(code, text, &length);
    snprintf(state->error, sizeof state->error, "%s: %s", what, text);
    return -1;
}

static int mpi_send(void *opaque, uint32_t to, uint32_t lane, const void *bytes, size_t length, uint64_t ticket)
{
    mpi_state *state = opaque;
    int on_node = state->rank_on_node[to];
    int code;

    if (state->under_way == state->room) {
        int room = state->room ? 2 * state->room : 64;
        MPI_Request *requests = realloc(state->requests, (size_t)room * sizeof *requests);
        uint64_t *tickets;

        if (requests)
            state->requests = requests;
        tickets = realloc(state->tickets, (size_t)room * sizeof *tickets);
        if (tickets)
            state->tickets = tickets;
        if (!requests || !tickets) {
            snprintf(state->error, sizeof state->error, "no memory for a request");
            return -1;
        }
        state->room = room;
    }
    if (on_node != MPI_UNDEFINED)
        code = MPI_Issend(bytes, (int)length, MPI_BYTE, on_node, (int)lane, state->node,
                          &state->requests[state->under_way]);
    else
        code = MPI_Issend(bytes, (int)length, MPI_BYTE, (int)to, (int)lane, state->all,
                          &state->requests[state->under_way]);
    if (code != MPI_SUCCESS)
        return failed(state, "MPI_Issend", code);
    state->tickets[state->under_way++] = ticket;
    state->idle = 0;
    return 0;
}

static int mpi_sent(void *opaque, uint64_t *ticket)
{
    mpi_state *state = opaque;
    int place = MPI_UNDEFINED, done = 0, code;

    if (state->under_way == 0)
        return 0;
    code = MPI_Testany(state->under_way, state->requests, &place, &done, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS)
        return failed(state, "MPI_Testany", code);
    if (!done || place == MPI_UNDEFINED)
        return 0;
    *ticket = state->tickets[place];
    state->under_way--;
    state->requests[place] = state->requests[state->under_way];
    state->tickets[place] = state->tickets[state->under_way];
    state->idle = 0;
    return 1;
}

/* Looks whether all of a batch has come. */
static int finish(mpi_state *state, mpi_arrival *arrival, size_t *length, uint32_t *from)
{
    int done = 0, code = MPI_Test(&arrival->request, &done, MPI_STATUS_IGNORE);

    if (code != MPI_SUCCESS)
        return failed(state, "MPI_Test", code);
    if (!done)
        return 0;
    arrival->coming = 0;
    *length = (size_t)arrival->bytes;
    *from = arrival->from;
    state->idle = 0;
    return 1;
}

/* Begins to take the next batch of a lane. */
static int begin(mpi_state *state, int from_node, uint32_t lane, void *into, size_t capacity)
{
    MPI_Comm comm = from_node ? state->node : state->all;
    mpi_arrival *arrival = &state->arrivals[lane];
    MPI_Message message;
    MPI_Status status;
    int there = 0, bytes = 0, code;

    code = MPI_Improbe(MPI_ANY_SOURCE, (int)lane, comm, &there, &message, &status);
    if (code != MPI_SUCCESS)
        return failed(state, "MPI_Improbe", code);
    if (!there)
        return 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    if (bytes < 0 || (size_t)bytes > capacity) {
        snprintf(state->error, sizeof state->error, "a batch of %d bytes came where %zu are the most", bytes,
                 capacity);
        return -1;
    }
    code = MPI_Imrecv(into, bytes, MPI_BYTE, &message, &arrival->request);
    if (code != MPI_SUCCESS)
        return failed(state, "MPI_Imrecv", code);
    arrival->from = (uint32_t)(from_node ? state->rank_of_node[status.MPI_SOURCE] : status.MPI_SOURCE);
    arrival->bytes = bytes;
    arrival->coming = 1;
    state->idle = 0;
    return 1;
}

static int mpi_receive(void *opaque, uint32_t lane, void *into, size_t capacity, size_t *length, uint32_t *from)
{
    mpi_state *state = opaque;
    mpi_arrival *arrival;
    int begun;

    if (lane >= ASCOT_LANES) {
        snprintf(state->error, sizeof state->error, "there is no lane %u", (unsigned)lane);
        return -1;
    }
    arrival = &state->arrivals[lane];
    if (!arrival->coming) {
        state->node_first = !state->node_first;
        begun = begin(state, state->node_first, lane, into, capacity);
        if (begun == 0)
            begun = begin(state, !state->node_first, lane, into, capacity);
        if (begun <= 0)
            return begun;
    }
    return finish(state, arrival, length, from);
}

static int mpi_wait(void *opaque, uint32_t microseconds)
{
    mpi_state *state = opaque;
    struct timespec moment = {0, SLEEP_NANOSECONDS};

    /* A rank with a processor of its own goes on at once; where ranks are more, another gets it. */
    if (++state->idle <= YIELDS) {
        sched_yield();
        return 0;
    }
    if (microseconds < SLEEP_NANOSECONDS / 1000)
        moment.tv_nsec = (long)microseconds * 1000;
    nanosleep(&moment, NULL);
    return 0;
}

static const char *mpi_error(void *opaque)
{
    return ((mpi_state *)opaque)->error;
}

static void mpi_end(void *opaque, int orderly)
{
    mpi_state *state = opaque;

    if (!state)
        return;
    if (orderly) {
        /* The last words of an agreement are waited for by those they are for. */
        MPI_Waitall(state->under_way, state->requests, MPI_STATUSES_IGNORE);
        MPI_Comm_free(&state->node);
        MPI_Comm_free(&state->all);
    }
    /* After a failure others may be gone: what is under way or coming is left to MPI, as are the communicators, whose
     * end all ranks would have to take part in. The writer leaves it the memory, too. */
    free(state->requests);
    free(state->tickets);
    free(state->node_of_rank);
    free(state->rank_on_node);
    free(state->rank_of_node);
    free(state);
}

/* Who is on which node. */
static int place_ranks(mpi_state *state)
{
    MPI_Group all, node;
    uint32_t lowest = (uint32_t)state->rank;
    size_t size = (size_t)state->size;
    int on_node = 0, *ranks, i;

    MPI_Comm_size(state->node, &on_node);
    state->node_of_rank = malloc(size * sizeof *state->node_of_rank);
    state->rank_on_node = malloc(size * sizeof *state->rank_on_node);
    state->rank_of_node = malloc((size_t)on_node * sizeof *state->rank_of_node);
    ranks = malloc(size * sizeof *ranks);
    if (!state->node_of_rank || !state->rank_on_node || !state->rank_of_node || !ranks) {
        free(ranks);
        return 0;
    }
    for (i = 0; i < state->size; i++)
        ranks[i] = i;
    MPI_Comm_group(state->all, &all);
    MPI_Comm_group(state->node, &node);
    MPI_Group_translate_ranks(all, state->size, ranks, node, state->rank_on_node);
    MPI_Group_translate_ranks(node, on_node, ranks, all, state->rank_of_node);
    MPI_Group_free(&all);
    MPI_Group_free(&node);
    free(ranks);
    for (i = 0; i < on_node; i++)
        if ((uint32_t)state->rank_of_node[i] < lowest)
            lowest = (uint32_t)state->rank_of_node[i];
    return MPI_Allgather(&lowest, 1, MPI_UINT32_T, state->node_of_rank, 1, MPI_UINT32_T, state->all) ==
           MPI_SUCCESS;
}

int ascot_mpi_transport(MPI_Comm comm, ascot_transport *transport)
{
    mpi_state *state;

    if (!transport)
        return ASCOT_INVALID;
    memset(transport, 0, sizeof *transport);
    state = calloc(1, sizeof *state);
    if (!state)
        return ASCOT_MEMORY;
    if (MPI_Comm_dup(comm, &state->all) != MPI_SUCCESS) {
        free(state);
        return ASCOT_TRANSPORT;
    }
    MPI_Comm_set_errhandler(state->all, MPI_ERRORS_RETURN);
    MPI_Comm_rank(state->all, &state->rank);
    MPI_Comm_size(state->all, &state->size);
    if (MPI_Comm_split_type(state->all, MPI_COMM_TYPE_SHARED, state->rank, MPI_INFO_NULL, &state->node) !=
        MPI_SUCCESS) {
        MPI_Comm_free(&state->all);
        free(state);
        return ASCOT_TRANSPORT;
    }
    MPI_Comm_set_errhandler(state->node, MPI_ERRORS_RETURN);
    if (!place_ranks(state)) {
        mpi_end(state, 1);
        return ASCOT_MEMORY;
    }
    transport->abi = ASCOT_TRANSPORT_ABI;
    transport->rank = (uint32_t)state->rank;
    transport->size = (uint32_t)state->size;
    transport->node_of_rank = state->node_of_rank;
    transport->state = state;
    transport->send = mpi_send;
    transport->sent = mpi_sent;
    transport->receive = mpi_receive;
    transport->wait = mpi_wait;
    transport->error = mpi_error;
    transport->release = mpi_end;
    return ASCOT_OK;
}

void ascot_mpi_release(ascot_transport *transport)
{
    if (transport && transport->state) {
        mpi_end(transport->state, 1);
        transport->state = NULL;
    }
}
