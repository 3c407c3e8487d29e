/*
 * incload.c
 *		Module entry, settings.
 */
#include "postgres.h"

#include <limits.h>

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/varlena.h"

#include "ahead.h"
#include "compat.h"
#include "connection.h"
#include "database_hook.h"
#include "incload.h"
#include "launcher.h"
#include "marks.h"
#include "progress.h"
#include "slots.h"

PG_MODULE_MAGIC;

char	   *incload_databases;
int			incload_max_workers;
int			incload_naptime;
int			incload_run_retention;
char	   *incload_runbook_url;

static const struct config_enum_entry read_ahead_words[] = {
	{"auto", READ_AHEAD_AUTO, false},
	{"on", READ_AHEAD_ON, false},
	{"off", READ_AHEAD_OFF, false},
	{NULL, 0, false}
};

void		_PG_init(void);

static bool
check_databases(char **value, void **extra, GucSource source)
{
	char	   *list = pstrdup(*value);
	List	   *names;
	bool		is_good = SplitGUCList(list, ',', &names);

	if (!is_good)
		GUC_check_errdetail("List syntax is invalid.");
	list_free(names);
	pfree(list);
	return is_good;
}

void
_PG_init(void)
{
	DefineCustomIntVariable("incload.idle_connection_timeout",
							"Sets how long a connection to a source is kept after its last use.",
							"0 keeps none.",
							&connection_idle_timeout, 10 * 60 * 1000, 0, INT_MAX,
							PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomStringVariable("incload.databases",
							   "Lists the databases in which jobs run by their schedules.",
							   "* is each that has the extension. Takes preloading.",
							   &incload_databases, "*",
							   PGC_SIGHUP, GUC_LIST_INPUT, check_databases, NULL, NULL);
	DefineCustomIntVariable("incload.max_workers",
							"Sets how many scheduled jobs run at once on this server.",
							"Each takes one of max_worker_processes.",
							&incload_max_workers, 4, 1, 1024,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("incload.naptime",
							"Sets how often the schedulers look for jobs that are due.",
							NULL,
							&incload_naptime, 1000, 10, 60 * 60 * 1000,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomEnumVariable("incload.read_ahead",
							 "Sets whether the pages of rows that have come are asked for ahead of the MERGE.",
							 "auto does it where reading some of them takes long.",
							 &incload_read_ahead, READ_AHEAD_AUTO, read_ahead_words,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("incload.run_retention",
							"Sets how long the history of runs and events is kept.",
							"0 keeps it for ever.",
							&incload_run_retention, 90 * 24 * 60, 0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MIN, NULL, NULL, NULL);
	DefineCustomStringVariable("incload.runbook_url",
							   "Sets where the runbooks are: what stands before docs/runbooks in links.",
							   NULL,
							   &incload_runbook_url, "",
							   PGC_SIGHUP, 0, NULL, NULL, NULL);
	MarkGUCPrefixReserved("incload");
	database_hook_install();
	if (process_shared_preload_libraries_in_progress)
	{
		slots_preload();
		marks_preload();
		progress_preload();
		launcher_register();
	}
}

/* an event of that name, made when a process first waits for it */
static uint32
wait_event(uint32 *event, const char *name)
{
	if (*event == 0)
		*event = compat_wait_event(name);
	return *event;
}

uint32
incload_wait_event_source(void)
{
	static uint32 event = 0;

	return wait_event(&event, "IncloadSource");
}

uint32
incload_wait_event_idle(void)
{
	static uint32 event = 0;

	return wait_event(&event, "IncloadIdle");
}

uint32
incload_wait_event_brake(void)
{
	static uint32 event = 0;

	return wait_event(&event, "IncloadBrake");
}
