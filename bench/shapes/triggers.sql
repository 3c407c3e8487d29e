-- At the target, a trigger before each row and one after each statement.

CREATE FUNCTION tidy() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.note := rtrim(NEW.note);
    RETURN NEW;
END $$;
CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER tidy BEFORE INSERT OR UPDATE ON base FOR EACH ROW EXECUTE FUNCTION tidy();
CREATE TRIGGER look AFTER INSERT OR UPDATE ON base FOR EACH STATEMENT EXECUTE FUNCTION look();
