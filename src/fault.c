/*
 * fault.c
 *		Errors that pass by themselves, and those that somebody has to mend.
 */
#include "postgres.h"

#include "utils/errcodes.h"

#include "fault.h"

bool
fault_is_passing(int sqlstate)
{
	switch (sqlstate)
	{
		case ERRCODE_T_R_SERIALIZATION_FAILURE:	/* also a conflict with a standby's replay */
		case ERRCODE_T_R_DEADLOCK_DETECTED:
		case ERRCODE_LOCK_NOT_AVAILABLE:
		case ERRCODE_OBJECT_IN_USE:
		case ERRCODE_ADMIN_SHUTDOWN:
		case ERRCODE_CRASH_SHUTDOWN:
		case ERRCODE_CANNOT_CONNECT_NOW:
		case ERRCODE_DATABASE_DROPPED:	/* a conflict, too */
		case ERRCODE_IDLE_SESSION_TIMEOUT:	/* of the source, and the next */
		case ERRCODE_IDLE_IN_TRANSACTION_SESSION_TIMEOUT:
		case ERRCODE_FDW_UNABLE_TO_ESTABLISH_CONNECTION:
			return true;
		default:
			/* a lost connection; no room for another one, in memory or on the disk */
			return ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_CONNECTION_EXCEPTION ||
				ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_INSUFFICIENT_RESOURCES;
	}
}
