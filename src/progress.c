/*
 * progress.c
 *		How far the runs are that are under way, for everybody to see.
 *
 * A run takes an entry in shared memory under a lock, and writes into it without one: each
 * number is whole, and that they are not all of one moment does no harm. Who finds no
 * entry free runs all the same, and is not seen. It is small, so that it also fits into what a
 * server leaves for a library that was not preloaded.
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "progress.h"
#include "shared.h"

/* runs that are seen at once */
#define ENTRIES 128

/* a session is told how far its run is after so long, then twice as long after that, up to the longest */
#define FIRST_TOLD_MS 5000
#define LONGEST_UNTOLD_MS 60000

typedef struct Entry
{
	pid_t		pid;			/* 0: free */
	Oid			database;
	int64		job_id;
	int64		run_id;
	char		kind[16];
	TimestampTz started_at;
	pg_atomic_uint32 phase;
	pg_atomic_uint64 rows;
	pg_atomic_uint64 bytes;
	pg_atomic_uint64 batches;
} Entry;

typedef struct Shared
{
	LWLock		lock;
	Entry		entry[ENTRIES];
} Shared;

struct Progress
{
	Progress   *outer;			/* of the run whose SQL has called this one */
	ProgressCount outer_count;
	Entry	   *entry;			/* NULL: none was free */
	char	   *job;
	int			encoding;		/* of the session's client: while rows are read, it may be another one */
	TimestampTz started_at;
	TimestampTz next_told;
	int			told_every;		/* milliseconds */
};

ProgressCount progress_count;

static Progress *innermost = NULL;

static const char *const phase_names[] = {
	[PHASE_PREPARING] = "preparing",[PHASE_READING] = "reading",[PHASE_WRITING] = "writing",
	[PHASE_DELETING] = "deleting",[PHASE_FINISHING] = "finishing",[PHASE_COMPARING] = "comparing",
};

static Size
progress_size(void)
{
	return sizeof(Shared);
}

static void
make_entries(void *memory)
{
	for (int i = 0; i < ENTRIES; i++)
	{
		Entry	   *entry = &((Shared *) memory)->entry[i];

		pg_atomic_init_u32(&entry->phase, 0);
		pg_atomic_init_u64(&entry->rows, 0);
		pg_atomic_init_u64(&entry->bytes, 0);
		pg_atomic_init_u64(&entry->batches, 0);
	}
}

static SharedPiece piece = {.name = "incload progress", .tranche = "IncloadProgress", .size = progress_size, .make = make_entries};

#define shared ((Shared *) piece.memory)

void
progress_preload(void)
{
	shared_preload(&piece);
}

/* whoever ends in the middle of a run leaves nothing behind */
static void
leave_entries(int code, Datum arg)
{
	shared_lock(&piece, LW_EXCLUSIVE);
	for (int i = 0; i < ENTRIES; i++)
		if (shared->entry[i].pid == MyProcPid)
			shared->entry[i].pid = 0;
	shared_unlock(&piece);
}

static Entry *
take_entry(const Job *job, int64 run_id, const char *kind)
{
	static bool leaves = false;
	Entry	   *entry = NULL;

	shared_attach(&piece);
	if (!leaves)
		before_shmem_exit(leave_entries, 0);
	leaves = true;
	shared_lock(&piece, LW_EXCLUSIVE);
	for (int i = 0; i < ENTRIES && entry == NULL; i++)
		if (shared->entry[i].pid == 0)
			entry = &shared->entry[i];
	if (entry)
	{
		entry->pid = MyProcPid;
		entry->database = MyDatabaseId;
		entry->job_id = job->id;
		entry->run_id = run_id;
		strlcpy(entry->kind, kind, sizeof(entry->kind));
		entry->started_at = GetCurrentTimestamp();
		pg_atomic_write_u32(&entry->phase, PHASE_PREPARING);
		pg_atomic_write_u64(&entry->rows, 0);
		pg_atomic_write_u64(&entry->bytes, 0);
		pg_atomic_write_u64(&entry->batches, 0);
	}
	shared_unlock(&piece);
	return entry;
}

Progress *
progress_begin(const Job *job, int64 run_id, const char *kind)
{
	Progress   *progress = MemoryContextAllocZero(TopMemoryContext, sizeof(Progress));

	progress->job = MemoryContextStrdup(TopMemoryContext, job->name);
	progress->encoding = pg_get_client_encoding();
	progress->started_at = GetCurrentTimestamp();
	progress->told_every = FIRST_TOLD_MS;
	progress->next_told = TimestampTzPlusMilliseconds(progress->started_at, FIRST_TOLD_MS);
	progress->entry = take_entry(job, run_id, kind);
	progress->outer = innermost;
	progress->outer_count = progress_count;
	innermost = progress;
	memset(&progress_count, 0, sizeof(progress_count));
	return progress;
}

void
progress_end(Progress *progress)
{
	if (progress->entry)
	{
		shared_lock(&piece, LW_EXCLUSIVE);
		progress->entry->pid = 0;
		shared_unlock(&piece);
	}
	innermost = progress->outer;
	progress_count = progress->outer_count;
	pfree(progress->job);
	pfree(progress);
}

/*
 * Tells the session. Rows may be on their way through COPY's parser, which adds its own
 * context to every message, and under another encoding for the client.
 */
static void
tell(Progress *progress, TimestampTz now)
{
	int			encoding = pg_get_client_encoding();
	ErrorContextCallback *context = error_context_stack;
	double		seconds = (now - progress->started_at) / (double) USECS_PER_SEC;

	progress->told_every = Min(progress->told_every * 2, LONGEST_UNTOLD_MS);
	progress->next_told = TimestampTzPlusMilliseconds(now, progress->told_every);
	SetClientEncoding(progress->encoding);
	error_context_stack = NULL;
	ereport(NOTICE,
			(errmsg("%s: " UINT64_FORMAT " rows read so far, %.0f a second", progress->job, progress_count.rows,
					progress_count.rows / seconds)));
	error_context_stack = context;
	SetClientEncoding(encoding);
}

void
progress_publish(void)
{
	Progress   *progress = innermost;
	TimestampTz now;

	if (progress == NULL)
		return;
	if (progress->entry)
	{
		pg_atomic_write_u64(&progress->entry->rows, progress_count.rows);
		pg_atomic_write_u64(&progress->entry->bytes, progress_count.bytes);
	}
	if (whereToSendOutput != DestRemote)
		return;
	now = GetCurrentTimestamp();
	if (now >= progress->next_told)
		tell(progress, now);
}

void
progress_phase(ProgressPhase phase)
{
	if (innermost == NULL || innermost->entry == NULL)
		return;
	pg_atomic_write_u32(&innermost->entry->phase, phase);
	pg_atomic_write_u64(&innermost->entry->rows, progress_count.rows);
	pg_atomic_write_u64(&innermost->entry->bytes, progress_count.bytes);
}

void
progress_batches(int committed)
{
	if (innermost && innermost->entry)
		pg_atomic_write_u64(&innermost->entry->batches, committed);
}

/* of the row of an entry */
static void
fill_values(Entry *entry, Datum *values)
{
	uint32		phase = pg_atomic_read_u32(&entry->phase);

	values[0] = Int32GetDatum(entry->pid);
	values[1] = Int64GetDatum(entry->job_id);
	values[2] = Int64GetDatum(entry->run_id);
	values[3] = CStringGetTextDatum(entry->kind);
	values[4] = CStringGetTextDatum(phase_names[phase]);
	values[5] = Int64GetDatum(pg_atomic_read_u64(&entry->rows));
	values[6] = Int64GetDatum(pg_atomic_read_u64(&entry->bytes));
	values[7] = Int64GetDatum(pg_atomic_read_u64(&entry->batches));
	values[8] = TimestampTzGetDatum(entry->started_at);
}

PG_FUNCTION_INFO_V1(incload_running);

/* incload.running() → (pid, job_id, run_id, kind, phase, rows_read, bytes_read, batches, started_at): of this database */
Datum
incload_running(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Entry	   *copies = palloc(sizeof(Entry) * ENTRIES);

	InitMaterializedSRF(fcinfo, 0);
	shared_lock(&piece, LW_SHARED);
	memcpy(copies, shared->entry, sizeof(Entry) * ENTRIES);
	shared_unlock(&piece);
	for (int i = 0; i < ENTRIES; i++)
	{
		bool		nulls[9] = {0};
		Datum		values[9];

		if (copies[i].pid == 0 || copies[i].database != MyDatabaseId)
			continue;
		fill_values(&copies[i], values);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
