/*
 * background.c
 *		Starting a background worker of incload's.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/guc.h"

#include "background.h"
#include "compat.h"
#include "role.h"

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

void
background_pin_settings(void)
{
	static const char *const settings[][2] = {
		/* who is free and what is due have to be of the same moment, or later ones; and nobody retries what cannot be serialized */
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_read_only", "off"},
		/* an error is put on record, and ends no worker */
		{"exit_on_error", "off"},
#if COMPAT_HAS_TRANSACTION_TIMEOUT
		{"transaction_timeout", "0"},
#endif
		{"role", "none"},
	};

	for (int i = 0; i < lengthof(settings); i++)
		SetConfigOption(settings[i][0], settings[i][1], PGC_USERSET, PGC_S_OVERRIDE);
	role_pin_formats_for_good();
}

bool
background_start(BackgroundWorker *worker, BackgroundWorkerHandle **handle)
{
	worker->bgw_notify_pid = MyProcPid;
	return RegisterDynamicBackgroundWorker(worker, handle);
}
