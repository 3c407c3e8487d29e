/*
 * incload.c
 *		Module entry.
 */
#include "postgres.h"

#include "fmgr.h"

#include "compat.h"
#include "incload.h"

PG_MODULE_MAGIC;

uint32
incload_wait_event_source(void)
{
	static uint32 event = 0;

	if (event == 0)
		event = compat_wait_event("IncloadSource");
	return event;
}
