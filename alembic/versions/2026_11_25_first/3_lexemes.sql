-- Lexemes of texts.

-- One row: the language of the words, and the progress of the backfill after a change of language.
CREATE TABLE lexicon (
    id boolean NOT NULL DEFAULT true,
    language varchar NOT NULL,
    former text[] NOT NULL DEFAULT '{}',
    kind varchar NOT NULL DEFAULT 'memory',
    done uuid,
    CONSTRAINT pk_lexicon PRIMARY KEY (id),
    CONSTRAINT ck_lexicon_one_row CHECK (id)
);
INSERT INTO lexicon (language) VALUES ('english');

-- Runs of Chinese, Japanese and Korean characters as overlapping bigrams, since no spaces separate their words.
CREATE FUNCTION lexical_bigrams(content text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT string_agg(CASE WHEN run ~ '^[\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]{2}' THEN
        (SELECT ' ' || string_agg(one || next, ' ' ORDER BY i) || ' '
         FROM (SELECT one, lead(one) OVER (ORDER BY i) AS next, i
               FROM unnest(string_to_array(run, NULL)) WITH ORDINALITY AS characters(one, i)) pairs)
        ELSE run END, '' ORDER BY place)
    FROM (SELECT found[1] AS run, place FROM regexp_matches(content,
        '[\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+'
        '|[^\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+', 'g')
        WITH ORDINALITY AS runs(found, place)) runs
$$;

-- Words without their accents, in Latin, Greek and Cyrillic script.
CREATE FUNCTION lexical_folded(content text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT string_agg(translate(normalize(regexp_replace(
        normalize(found[1], NFD), '([A-Za-zΑ-Ωα-ωЕе])[\u0300-\u036f]+', '\1', 'g'), NFC), 'øØłŁđĐı', 'oOlLdDi'), ' ')
    FROM regexp_matches(content, '[[:alnum:]]*[\u00c0-\u024f\u0386\u0388-\u0390\u03aa-\u03b0\u03ca-\u03ce\u0401\u0451'
        '\u1e00-\u1fff][[:alnum:]]*', 'g') found
$$;

-- Dates in digits or English as `2023.05.08`, `05.08` and `2023.05`, with the name of the month and the day.
CREATE FUNCTION lexical_dates(content text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    WITH found AS (
        SELECT m[1] AS year, m[2]::int AS month, m[3]::int AS day FROM regexp_matches(content,
            '\m(\d{4})[-/.](0?[1-9]|1[0-2])[-/.](0?[1-9]|[12]\d|3[01])(?!\d)', 'g') m
        UNION SELECT m[3], strpos('janfebmaraprmayjunjulaugsepoctnovdec', left(lower(m[2]), 3)) / 3 + 1, m[1]::int
        FROM regexp_matches(content, '\m(\d{1,2})(?:st|nd|rd|th)?\s+(?:of\s+)?(jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|'
            'apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\M'
            '(?:[.,]*\s+(\d{4})\M)?', 'gi') m
        UNION SELECT m[3], strpos('janfebmaraprmayjunjulaugsepoctnovdec', left(lower(m[1]), 3)) / 3 + 1, m[2]::int
        FROM regexp_matches(content, '\m(jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|'
            'aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\M\.?\s+'
            '(\d{1,2})(?:st|nd|rd|th)?\M(?:\s*,?\s*(\d{4})\M)?', 'gi') m
        UNION SELECT m[2], strpos('janfebmaraprmayjunjulaugsepoctnovdec', left(lower(m[1]), 3)) / 3 + 1, NULL
        FROM regexp_matches(content, '\m(jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|'
            'aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\M\.?,?\s+(\d{4})\M', 'gi') m
    )
    SELECT string_agg(concat_ws(' ', year || '.' || lpad(month::text, 2, '0') || '.' || lpad(day::text, 2, '0'),
        lpad(month::text, 2, '0') || '.' || lpad(day::text, 2, '0'), year || '.' || lpad(month::text, 2, '0'),
        (ARRAY['January', 'February', 'March', 'April', 'May', 'June', 'July', 'August', 'September', 'October',
               'November', 'December'])[month], day), ' ')
    FROM found WHERE day IS NULL OR day BETWEEN 1 AND 31
$$;

-- Compound identifiers and words with digits as one lexeme: `getUserById` is `getuserbyid`, `v1-2_x` is `1.2x`.
CREATE FUNCTION lexical_compounds(content text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    WITH run AS (
        SELECT DISTINCT regexp_replace(lower(found[1]), '^v(?=\d+\.)', '') AS run FROM regexp_matches(content,
            '[[:alnum:]]+(?:(?:[-_./\\:@]|__|::|://|\\\\)[[:alnum:]]+)+'
            '|[[:alnum:]]*(?:[[:lower:]][[:upper:]]|[[:upper:]]{2}[[:lower:]]{2}|[[:alpha:]]\d|\d[[:alpha:]])[[:alnum:]]*'
            '|\m[[:alpha:]](?:\+\+|#)', 'g') found
    )
    SELECT string_agg(whole, ' ') FROM (
        SELECT regexp_replace(regexp_replace(replace(replace(run, '++', 'plusplus'), '#', 'sharp'),
            '(\d)[-_./\\:@]+(?=\d)', '\1.', 'g'), '[-_/\\:@]|\.(?!\d)|(?<!\d)\.', '', 'g') AS whole
        FROM run WHERE length(run) <= 100
        UNION ALL SELECT substring(run FROM '\d+\.\d+') FROM run WHERE run ~ '^\d+(\.\d+){2,}$'
    ) wholes
$$;

-- The text with such words split into their parts.
CREATE FUNCTION lexical_split(content text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT regexp_replace(regexp_replace(regexp_replace(translate(regexp_replace(regexp_replace(regexp_replace(content,
        '\mv(?=\d+\.\d)', '', 'gi'),
        '([[:lower:]])([[:upper:]])', '\1 \2', 'g'),
        '([[:upper:]])([[:upper:]][[:lower:]]{2,})', '\1 \2', 'g'),
        '-_/\:@', '      '),
        '\.(?!\d)|(?<!\d)\.', ' ', 'g'),
        '\m(\d+)(?:st|nd|rd|th)\M', '\1', 'gi'),
        '\m(?:([[:alpha:]]{3,})(\d+)|(\d+)([[:alpha:]]{2,}))\M', '\1\3 \2\4', 'g')
$$;

-- The lexemes of a text. Those with positions are its words. Those without are added and do not count as its length.
CREATE FUNCTION lexical_words(language regconfig, content text) RETURNS tsvector
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE COST 1000 AS $$
DECLARE
    source text := translate(content, '<>&', '   ');
    added text;
BEGIN
    IF octet_length(source) <> length(source) THEN
        IF source IS NOT NFKC NORMALIZED THEN
            source := normalize(source, NFKC);
        END IF;
        IF source ~ '[\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]{2}' THEN
            source := lexical_bigrams(source);
        END IF;
    END IF;
    IF source ~ '\d' THEN
        IF source ~ '\d,\d{3}' THEN
            source := regexp_replace(source, '(?<=\d),(?=\d{3}(?!\d))', '', 'g');
        END IF;
        IF source ~* '\d[-/.]\d\d?[-/.]\d|\m(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?,?\s+\d'
           '|\d(st|nd|rd|th)?\s+(of\s+)?(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)' THEN
            added := lexical_dates(source);
        END IF;
    END IF;
    IF source ~ '[[:alnum:]][-_./\\:@][[:alnum:]\\_:/]|[[:lower:]][[:upper:]]|[[:upper:]]{2}[[:lower:]]{2}|\d[[:alpha:]]|[[:alpha:]](\d|\+\+|#)' THEN
        added := concat_ws(' ', added, lexical_compounds(source));
        source := lexical_split(source);
    END IF;
    IF octet_length(source) <> length(source) THEN
        added := concat_ws(' ', added, lexical_folded(source));
    END IF;
    RETURN to_tsvector(language, source) || coalesce(strip(to_tsvector(language, added)), '');
END
$$;

-- The words of a phrase at their distances, as a query. Null if the phrase has no lexeme.
CREATE FUNCTION lexical_phrase(language regconfig, content text) RETURNS tsquery
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT string_agg(coalesce('<' || place - before || '>', '') || word, ' ' ORDER BY place)::tsquery
    FROM (SELECT '''' || replace(replace(w.lexeme, '\', '\\'), '''', '''''') || '''' AS word, place,
            lag(place) OVER (ORDER BY place) AS before
        FROM unnest(lexical_words(language, content)) w, unnest(w.positions) place) words
$$;

-- One hash for each lexeme in each of the memory's scopes: its user, and its namespace.
CREATE FUNCTION lexical_keys(user_id uuid, namespace text, words tsvector) RETURNS bigint[]
LANGUAGE sql IMMUTABLE STRICT PARALLEL UNSAFE COST 1000 AS $$
    SELECT array_agg(hashtextextended(lexeme, scope.seed))
    FROM unnest(words), (VALUES (uuid_hash_extended(user_id, 0)),
        (hashtextextended(namespace, uuid_hash_extended(user_id, 0)))) AS scope(seed)
$$;
