/*
 * autonomous.c
 *		A statement that commits whatever becomes of the caller's transaction.
 *
 * The text goes to a dynamic background worker in a shared memory segment. The
 * worker waits for no lock longer than a second. Where it is late all the same,
 * as on a machine that hangs, the caller goes on after WAIT_MS or when it is
 * cancelled: an error is not held up by the record of it. The record is made
 * even then, since the segment is pinned until the worker has it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "portability/instr_time.h"
#include "postmaster/interrupt.h"
#include "storage/dsm.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"

#include "autonomous.h"
#include "background.h"
#include "compat.h"
#include "incload.h"

#define WAIT_MS 20000

/* what is in the segment: the database, how far the worker has come, and the text */
typedef struct Request
{
	Oid			database;
	bool		is_taken;		/* it has the segment, which is no longer pinned */
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
		elog(ERROR, "what is to be recorded is gone");
	request = dsm_segment_address(segment);
	dsm_unpin_segment(dsm_segment_handle(segment));
	request->is_taken = true;

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

/* waits for the worker's end, but not for ever, nor when cancelled or told to go; false if it has not ended */
static bool
wait_for_end(BackgroundWorkerHandle *handle)
{
	instr_time	start;
	bool		has_ended;
	pid_t		pid;

	/* by a clock that nobody sets */
	INSTR_TIME_SET_CURRENT(start);
	for (;;)
	{
		instr_time	passed;
		double		left;

		INSTR_TIME_SET_CURRENT(passed);
		INSTR_TIME_SUBTRACT(passed, start);
		left = WAIT_MS - INSTR_TIME_GET_MILLISEC(passed);
		has_ended = GetBackgroundWorkerPid(handle, &pid) == BGWH_STOPPED;
		if (has_ended || left <= 0 || ProcDiePending || QueryCancelPending)
			break;
		if (WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					  (long) Min(left, 100), incload_wait_event_source()) & WL_LATCH_SET)
			ResetLatch(MyLatch);
	}
	/* a latch that was set for another reason is looked at again by whoever waits next */
	SetLatch(MyLatch);
	return has_ended;
}

static void
warn(int sqlstate, const char *detail, const char *hint)
{
	ereport(WARNING,
			(errcode(sqlstate),
			 errmsg("could not record the failed run in incload.run"),
			 errdetail("%s", detail),
			 errhint("%s", hint)));
}

static void
execute(const char *sql)
{
	BackgroundWorker worker;
	BackgroundWorkerHandle *handle;
	dsm_segment *segment;
	Request    *request;
	bool		has_ended;

	segment = dsm_create(offsetof(Request, sql) + strlen(sql) + 1, DSM_CREATE_NULL_IF_MAXSEGMENTS);
	if (segment == NULL)
	{
		warn(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED, "There are too many shared memory segments.",
			 "The error itself is reported as it is.");
		return;
	}
	request = dsm_segment_address(segment);
	request->database = MyDatabaseId;
	request->is_taken = request->is_done = false;
	strcpy(request->sql, sql);

	dsm_pin_segment(segment);
	background_describe(&worker, "incload recorder", "incload_autonomous_main", BGW_NEVER_RESTART,
						UInt32GetDatum(dsm_segment_handle(segment)));
	if (!background_start(&worker, &handle))
	{
		dsm_unpin_segment(dsm_segment_handle(segment));
		dsm_detach(segment);
		warn(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED, "No background worker is free.", "Raise max_worker_processes.");
		return;
	}
	has_ended = wait_for_end(handle);
	if (!request->is_done && has_ended)
		warn(ERRCODE_INTERNAL_ERROR, "The background worker has failed.", "The server log says why.");
	else if (!request->is_done)
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("the failed run is not yet recorded in incload.run"),
				 errdetail("The background worker that does it has not finished."),
				 errhint("It goes on. Should the run not appear, the server log says why.")));
	/* nobody else will have it */
	if (has_ended && !request->is_taken)
		dsm_unpin_segment(dsm_segment_handle(segment));
	dsm_detach(segment);
}

void
autonomous_execute(const char *sql)
{
	/* a cancel must not take the place of the error that is being handled: a warning looks for one */
	HOLD_INTERRUPTS();
	execute(sql);
	RESUME_INTERRUPTS();
}
