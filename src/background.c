/*
 * background.c
 *		Starting a background worker of incload's.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"

#include "background.h"

void
background_describe(BackgroundWorker *worker, const char *type, const char *function,
					int restart_seconds, Datum arg)
{
	memset(worker, 0, sizeof(BackgroundWorker));
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	/* on a standby nothing runs before its promotion */
	worker->bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker->bgw_restart_time = restart_seconds;
	worker->bgw_main_arg = arg;
	strlcpy(worker->bgw_library_name, "incload", BGW_MAXLEN);
	strlcpy(worker->bgw_function_name, function, BGW_MAXLEN);
	strlcpy(worker->bgw_name, type, BGW_MAXLEN);
	strlcpy(worker->bgw_type, type, BGW_MAXLEN);
}

bool
background_start(BackgroundWorker *worker, BackgroundWorkerHandle **handle)
{
	worker->bgw_notify_pid = MyProcPid;
	return RegisterDynamicBackgroundWorker(worker, handle);
}
