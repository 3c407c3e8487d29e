/*
 * progress.h
 *		How far the runs are that are under way, for everybody to see.
 *
 * A run's rows and its record are seen once they are committed. What it does until
 * then is in shared memory, which costs a row next to nothing.
 */
#ifndef INCLOAD_PROGRESS_H
#define INCLOAD_PROGRESS_H

#include "postgres.h"

#include "job.h"

typedef enum ProgressPhase
{
	PHASE_PREPARING,			/* connects, looks at both sides, finds out what to read */
	PHASE_READING,
	PHASE_WRITING,				/* puts a batch into the target */
	PHASE_DELETING,				/* what is gone at the source */
	PHASE_FINISHING,			/* post_sql, checkpoint, record */
	PHASE_COMPARING				/* of incload_reconcile */
} ProgressPhase;

typedef struct Progress Progress;

/* asks for the memory; from _PG_init, where the library is preloaded */
extern void progress_preload(void);

/* a run begins, inside the one that is under way in this process if there is one; and it ends, in an error too */
extern Progress *progress_begin(const Job *job, int64 run_id, const char *kind);
extern void progress_end(Progress *progress);

/* these are about the run that began last in this process, and do nothing where none is under way */
extern void progress_phase(ProgressPhase phase);
extern void progress_batches(int committed);
extern void progress_publish(void);

/* what the run has read so far; counted here, and shown to others now and then */
typedef struct ProgressCount
{
	uint64		rows;
	uint64		bytes;
} ProgressCount;

extern ProgressCount progress_count;

#define PROGRESS_EVERY 64

static inline void
progress_row(void)
{
	if (++progress_count.rows % PROGRESS_EVERY == 0)
		progress_publish();
}

static inline void
progress_bytes(Size n)
{
	progress_count.bytes += n;
}

#endif							/* INCLOAD_PROGRESS_H */
