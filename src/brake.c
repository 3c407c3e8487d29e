/*
 * brake.c
 *		Reading no faster than so many rows a second, for the source's sake.
 *
 * Who does not read fills the buffers between the two sides, and then the
 * source waits. So nothing has to be told to it.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/timestamp.h"

#include "brake.h"
#include "incload.h"

/* shorter waits than this are left until they have added up */
#define SHORTEST_WAIT_MS 10

void
brake_release(Brake *brake)
{
	brake->rows = 0;
	brake->since = GetCurrentTimestamp();
}

void
brake_row(Brake *brake)
{
	TimestampTz due;
	long		ms;

	if (brake->rate <= 0)
		return;
	brake->rows++;
	due = brake->since + (int64) ((double) brake->rows / brake->rate * USECS_PER_SEC);
	while ((ms = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), due)) >= SHORTEST_WAIT_MS)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms,
						 incload_wait_event_brake());
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}
