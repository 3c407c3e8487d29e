-- At the target, eight indexes more than at the source: ten in all.

CREATE INDEX ON base (customer_id);
CREATE INDEX ON base (state, updated_at);
CREATE INDEX ON base (amount);
CREATE INDEX ON base (created_at);
CREATE INDEX ON base (note);
CREATE INDEX ON base (customer_id, created_at);
CREATE INDEX ON base ((attributes ->> 'channel'), customer_id);
CREATE INDEX ON base (lower(state));
