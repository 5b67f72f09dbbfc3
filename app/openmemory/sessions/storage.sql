-- name: enter
-- Stores new sessions with the process that holds them, or notes that they are in use, and returns the time.
with entered as (
  insert into mcp_sessions (id, user_name, app_name, principal, bearer, holder)
  select *, :holder from unnest(
    CAST(:ids AS uuid[]), CAST(:users AS text[]), CAST(:apps AS text[]), CAST(:principals AS text[]),
    CAST(:bearers AS boolean[])
  )
  on conflict (id) do update set seen_at = now()
)
select now()

-- name: send
-- Stores a message for a session, and wakes the process that holds the session.
-- The lock keeps the session until the message is stored.
with receiver as (
  select id, holder from mcp_sessions
  where id = :session
    and (:anybody or (user_name is not distinct from :user and app_name is not distinct from :app))
    and (principal = :principal or (bearer and CAST(:principal AS text) is null))
  for key share
), sent as (
  insert into mcp_messages (session_id, sender, ticket, body) select id, :sender, :ticket, :body from receiver
  returning number
)
select number, pg_notify('${channel}' || holder, '') from receiver, sent
