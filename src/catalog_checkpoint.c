/*
 * catalog_checkpoint.c
 *		The stored checkpoints: of rows, and of tombstones.
 */
#include "postgres.h"

#include "catalog.h"
#include "compat.h"

/* statements on a checkpoint, the same for both stores */
#define SELECT_CHECKPOINT(store) \
"SELECT bound, bound_side, tie_key, noted_bounds, guarantee, held_back_by, epoch, seen," \
" seen_tie_key, seen_null, mark, definition_hash, loaded_to, fallback_bound, fallback_side," \
" fallback_noted, bound_type, relations FROM incload." store " WHERE job_id = $1::bigint"

#define UPDATE_CHECKPOINT(store) \
"UPDATE incload." store " SET bound = $2, bound_side = $3," \
" tie_key = $4::text[], noted_bounds = $5::jsonb, guarantee = $6," \
" held_back_by = $7, epoch = $8, seen = $9, seen_tie_key = $10::text[]," \
" seen_null = $11::boolean, mark = $12::xid8, definition_hash = $13," \
" loaded_to = $14, fallback_bound = $15, fallback_side = $16," \
" fallback_noted = $17::jsonb, bound_type = $18, relations = $19, updated_at = clock_timestamp() WHERE job_id = $1::bigint"

static const char select_checkpoint[] = SELECT_CHECKPOINT("checkpoint_store");
static const char update_checkpoint[] = UPDATE_CHECKPOINT("checkpoint_store");
static const char select_tombstones[] = SELECT_CHECKPOINT("tombstone_store");
static const char update_tombstones[] = UPDATE_CHECKPOINT("tombstone_store");

void
catalog_prepare_checkpoint(bool to_write)
{
	if (to_write)
		catalog_prepare(update_checkpoint, 19);
	else
		catalog_prepare(psprintf("%s FOR UPDATE", select_checkpoint), 1);
}

/* what a row of either store says */
static CheckpointRow *
checkpoint_row(char **v)
{
	CheckpointRow *row = palloc0(sizeof(CheckpointRow));

	row->bound = v[0];
	row->bound_side = v[1];
	row->tie_key = catalog_names_from_array(v[2]);
	row->noted_bounds = v[3];
	row->guarantee = v[4];
	row->held_back_by = v[5];
	row->epoch = v[6];
	row->seen = v[7];
	row->seen_tie_key = catalog_names_from_array(v[8]);
	row->seen_null = v[9][0] == 't';
	row->mark = v[10];
	row->definition_hash = v[11];
	row->loaded_to = v[12];
	row->fallback_bound = v[13];
	row->fallback_side = v[14];
	row->fallback_noted = v[15];
	row->bound_type = v[16];
	row->relations = v[17];
	return row;
}

static void
write_checkpoint(const char *statement, int64 job_id, const CheckpointRow *row)
{
	const char *params[19] = {
		psprintf(INT64_FORMAT, job_id), row->bound, row->bound_side,
		row->tie_key ? catalog_names_to_array(row->tie_key) : NULL,
		row->noted_bounds, row->guarantee, row->held_back_by, row->epoch, row->seen,
		row->seen_tie_key ? catalog_names_to_array(row->seen_tie_key) : NULL,
		row->seen_null ? "t" : "f", row->mark, row->definition_hash, row->loaded_to,
		row->fallback_bound, row->fallback_side, row->fallback_noted, row->bound_type, row->relations
	};

	catalog_query(statement, 19, params);
}

CheckpointRow *
catalog_read_checkpoint(int64 job_id, bool for_update)
{
	const char *params[1] = {psprintf(INT64_FORMAT, job_id)};
	TextRows   *rows;

	rows = catalog_query(for_update ? psprintf("%s FOR UPDATE", select_checkpoint)
						 : select_checkpoint, 1, params);
	if (rows->nrows == 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("the job was dropped while it was about to run"),
				 errdetail("Its checkpoint is gone."),
				 errhint("SELECT job FROM incload.job lists the jobs.")));
	return checkpoint_row(rows->value[0]);
}

void
catalog_write_checkpoint(int64 job_id, const CheckpointRow *row)
{
	write_checkpoint(update_checkpoint, job_id, row);
}

CheckpointRow *
catalog_read_tombstones(int64 job_id, bool for_update)
{
	const char *params[1] = {psprintf(INT64_FORMAT, job_id)};
	TextRows   *rows;
	CheckpointRow *nothing;

	/* there is a row once tombstones were read */
	if (for_update)
		catalog_query("INSERT INTO incload.tombstone_store (job_id) VALUES ($1::bigint) ON CONFLICT DO NOTHING", 1, params);
	rows = catalog_query(for_update ? psprintf("%s FOR UPDATE", select_tombstones) : select_tombstones, 1, params);
	if (rows->nrows > 0)
		return checkpoint_row(rows->value[0]);
	nothing = palloc0(sizeof(CheckpointRow));
	nothing->noted_bounds = nothing->fallback_noted = "[]";
	return nothing;
}

void
catalog_write_tombstones(int64 job_id, const CheckpointRow *row)
{
	write_checkpoint(update_tombstones, job_id, row);
}

void
catalog_forget_tombstones(int64 job_id)
{
	const char *params[1] = {psprintf(INT64_FORMAT, job_id)};

	catalog_query("DELETE FROM incload.tombstone_store WHERE job_id = $1::bigint", 1, params);
}

void
catalog_reset_checkpoint(int64 job_id)
{
	CheckpointRow nothing = {.noted_bounds = "[]", .fallback_noted = "[]"};

	catalog_write_checkpoint(job_id, &nothing);
	catalog_forget_tombstones(job_id);
}
