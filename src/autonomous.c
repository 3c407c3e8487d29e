/*
 * autonomous.c
 *		A statement that commits whatever becomes of the caller's transaction.
 *
 * The text goes to a dynamic background worker in a shared memory segment. The
 * worker waits for no lock longer than a second, and the caller for the worker
 * no longer than five: an error is never held up by the record of it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/dsm.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "autonomous.h"
#include "background.h"
#include "compat.h"
#include "incload.h"

#define WAIT_MS 5000

/* what is in the segment: the database, how it went, and the text */
typedef struct Request
{
	Oid			database;
	bool		is_done;
	char		sql[FLEXIBLE_ARRAY_MEMBER];
} Request;

PGDLLEXPORT void incload_autonomous_main(Datum arg);

void
incload_autonomous_main(Datum arg)
{
	dsm_segment *segment;
	Request    *request;

	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();

	segment = dsm_attach(DatumGetUInt32(arg));
	if (segment == NULL)
		return;					/* the caller has not waited */
	request = dsm_segment_address(segment);

	BackgroundWorkerInitializeConnectionByOid(request->database, InvalidOid,
											  BGWORKER_BYPASS_ALLOWCONN);
	background_pin_settings();
	SetConfigOption("search_path", "pg_catalog", PGC_USERSET, PGC_S_OVERRIDE);
	/* a synchronous standby that is away must not hold up an error */
	SetConfigOption("synchronous_commit", "local", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("lock_timeout", "1s", PGC_USERSET, PGC_S_OVERRIDE);

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	SPI_connect();
	PushActiveSnapshot(GetTransactionSnapshot());
	pgstat_report_activity(STATE_RUNNING, "incload: recording a run that failed");
	if (SPI_execute(request->sql, false, 0) < 0)
		elog(ERROR, "SPI_execute failed");
	SPI_finish();
	PopActiveSnapshot();
	CommitTransactionCommand();
	request->is_done = true;
	pgstat_report_activity(STATE_IDLE, NULL);
	dsm_detach(segment);
}

/* waits for the worker's end, but not for ever, and not for one who is told to go */
static void
wait_for_end(BackgroundWorkerHandle *handle)
{
	TimestampTz deadline = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), WAIT_MS);
	pid_t		pid;

	while (GetBackgroundWorkerPid(handle, &pid) != BGWH_STOPPED && !ProcDiePending)
	{
		long		left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), deadline);

		if (left <= 0)
			break;
		if (WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					  Min(left, 100), incload_wait_event_source()) & WL_LATCH_SET)
			ResetLatch(MyLatch);
	}
	/* a latch that was set for another reason is looked at again by whoever waits next */
	SetLatch(MyLatch);
}

static void
warn(const char *detail, const char *hint)
{
	ereport(WARNING,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("could not record the failed run in incload.run"),
			 errdetail("%s", detail),
			 errhint("%s", hint)));
}

bool
autonomous_execute(const char *sql)
{
	BackgroundWorker worker;
	BackgroundWorkerHandle *handle;
	dsm_segment *segment;
	Request    *request;
	bool		is_done;

	segment = dsm_create(offsetof(Request, sql) + strlen(sql) + 1, DSM_CREATE_NULL_IF_MAXSEGMENTS);
	if (segment == NULL)
	{
		warn("There are too many shared memory segments.", "The error itself is reported as it is.");
		return false;
	}
	request = dsm_segment_address(segment);
	request->database = MyDatabaseId;
	request->is_done = false;
	strcpy(request->sql, sql);

	background_describe(&worker, "incload recorder", "incload_autonomous_main", BGW_NEVER_RESTART,
						UInt32GetDatum(dsm_segment_handle(segment)));
	if (!background_start(&worker, &handle))
	{
		dsm_detach(segment);
		warn("No background worker is free.", "Raise max_worker_processes.");
		return false;
	}
	wait_for_end(handle);
	is_done = request->is_done;
	dsm_detach(segment);
	if (!is_done)
		warn("The background worker has not finished.", "The server log says why.");
	return is_done;
}
