/*
 * shared.c
 *		Pieces of shared memory.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"

#include "compat.h"
#include "shared.h"

/* that were asked for */
#define MOST_PIECES 4

static SharedPiece *pieces[MOST_PIECES];
static int	npieces = 0;
static shmem_request_hook_type next_request_hook = NULL;
static shmem_startup_hook_type next_startup_hook = NULL;

static void
request_memory(void)
{
	if (next_request_hook)
		next_request_hook();
	for (int i = 0; i < npieces; i++)
		RequestAddinShmemSpace(pieces[i]->size());
}

void
shared_attach(SharedPiece *piece)
{
	LWLock	   *lock;
	bool		found;

	if (piece->memory)
		return;
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	lock = ShmemInitStruct(piece->name, piece->size(), &found);
	if (!found)
	{
		memset(lock, 0, piece->size());
		LWLockInitialize(lock, compat_new_tranche(piece->tranche));
		if (piece->make)
			piece->make(lock);
	}
	LWLockRelease(AddinShmemInitLock);
	compat_register_tranche(lock->tranche, piece->tranche);
	piece->memory = lock;
}

/* what was asked for is taken at once, before others fill what is left */
static void
take_memory(void)
{
	if (next_startup_hook)
		next_startup_hook();
	for (int i = 0; i < npieces; i++)
	{
		/* after a crash it is made anew */
		pieces[i]->memory = NULL;
		shared_attach(pieces[i]);
	}
}

void
shared_preload(SharedPiece *piece)
{
	Assert(npieces < MOST_PIECES);
	if (npieces == 0)
	{
		next_request_hook = shmem_request_hook;
		shmem_request_hook = request_memory;
		next_startup_hook = shmem_startup_hook;
		shmem_startup_hook = take_memory;
	}
	pieces[npieces++] = piece;
}

void
shared_lock(SharedPiece *piece, LWLockMode mode)
{
	shared_attach(piece);
	LWLockAcquire(piece->memory, mode);
}

void
shared_unlock(SharedPiece *piece)
{
	LWLockRelease(piece->memory);
}
