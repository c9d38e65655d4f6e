/* ascot_mpi.h: writing an indexed directory from the ranks of an MPI program.
 *
 *     ascot_transport transport;
 *     if (ascot_mpi_transport(MPI_COMM_WORLD, &transport) != ASCOT_OK) ...
 *     ascot_writer_open("run.dir", options, &transport, &writer);
 *
 * Compile ascot_mpi.c with the program's own mpicc. MPI_THREAD_FUNNELED is enough.
 */
#ifndef ASCOT_MPI_H
#define ASCOT_MPI_H

#include <ascot.h>
#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Fills in a transport over copies of `comm`; collective. The writer that is opened with it releases it. */
int ascot_mpi_transport(MPI_Comm comm, ascot_transport *transport);

/* Releases a transport that no writer was opened with; collective. */
void ascot_mpi_release(ascot_transport *transport);

#ifdef __cplusplus
}
#endif

#endif
