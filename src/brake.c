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

#include "brake.h"
#include "incload.h"

/* by how much the rows are ahead of what the rate allows; no clock that is set back or forward counts */
static long
ahead_ms(const Brake *brake)
{
	instr_time	elapsed;

	INSTR_TIME_SET_CURRENT(elapsed);
	INSTR_TIME_SUBTRACT(elapsed, brake->since);
	return (long) ((double) brake->rows * 1000 / brake->rate - INSTR_TIME_GET_MILLISEC(elapsed));
}

/* shorter waits than this are left until they have added up */
#define SHORTEST_WAIT_MS 10

void
brake_release(Brake *brake)
{
	brake->rows = 0;
	INSTR_TIME_SET_CURRENT(brake->since);
}

void
brake_row(Brake *brake)
{
	long		ms;

	if (brake->rate <= 0)
		return;
	brake->rows++;
	while ((ms = ahead_ms(brake)) >= SHORTEST_WAIT_MS)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms,
						 incload_wait_event_brake());
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}
