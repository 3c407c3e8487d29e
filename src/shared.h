/*
 * shared.h
 *		Pieces of shared memory.
 *
 * Each is small, so that it also fits into what a server leaves for a library that
 * was not preloaded. A crash of the server empties them all.
 */
#ifndef INCLOAD_SHARED_H
#define INCLOAD_SHARED_H

#include "postgres.h"

#include "storage/lwlock.h"

/* SharedPiece: one of them, which begins with its lock; a static variable of who has it */
typedef struct SharedPiece
{
	const char *name;
	const char *tranche;		/* of its lock */
	Size		(*size) (void);
	void		(*make) (void *memory);	/* fills what is zeroed and has its lock; NULL: nothing */
	void	   *memory;			/* once shared_attach() was called in this process */
} SharedPiece;

/* asks for its memory; from _PG_init, where the library is preloaded */
extern void shared_preload(SharedPiece *piece);

/* finds it, or makes it */
extern void shared_attach(SharedPiece *piece);

/* the same, and takes its lock */
extern void shared_lock(SharedPiece *piece, LWLockMode mode);
extern void shared_unlock(SharedPiece *piece);

#endif							/* INCLOAD_SHARED_H */
