/*
 * incload.c
 *		Module entry, settings.
 */
#include "postgres.h"

#include <limits.h>

#include "fmgr.h"
#include "utils/guc.h"

#include "compat.h"
#include "connection.h"
#include "incload.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

void
_PG_init(void)
{
	DefineCustomIntVariable("incload.idle_connection_timeout",
							"Sets how long a connection to a source is kept after its last use.",
							"0 keeps none.",
							&connection_idle_timeout, 10 * 60 * 1000, 0, INT_MAX,
							PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);
	MarkGUCPrefixReserved("incload");
}

uint32
incload_wait_event_source(void)
{
	static uint32 event = 0;

	if (event == 0)
		event = compat_wait_event("IncloadSource");
	return event;
}
