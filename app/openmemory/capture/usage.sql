-- name: record
-- Adds one attempt, or the end of one capture, to the totals of an app's day.
-- The lock on the app's row makes a concurrent erasure of its user wait. If the app is gone, nothing is recorded.
INSERT INTO capture_usage AS u (user_id, app_id, namespace, day, calls, prompt_tokens, completion_tokens, seconds,
    done, failed, undone)
SELECT a.owner_id, a.id, :namespace, (now() AT TIME ZONE 'UTC')::date, :calls, :prompt_tokens, :completion_tokens,
    :seconds, :done, :failed, :undone
FROM apps AS a WHERE a.id = :app_id FOR KEY SHARE
ON CONFLICT (app_id, day, namespace) DO UPDATE SET calls = u.calls + excluded.calls,
    prompt_tokens = u.prompt_tokens + excluded.prompt_tokens,
    completion_tokens = u.completion_tokens + excluded.completion_tokens, seconds = u.seconds + excluded.seconds,
    done = u.done + excluded.done, failed = u.failed + excluded.failed, undone = u.undone + excluded.undone
