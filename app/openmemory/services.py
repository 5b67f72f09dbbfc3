"""The composition root: the only place that reads settings and builds the product from its parts."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING

from openmemory.access.apps import Apps
from openmemory.access.audit import Audit
from openmemory.access.browser_sessions import BrowserSessions
from openmemory.access.denials import Denials
from openmemory.access.directory import Directory
from openmemory.access.grants import Grants
from openmemory.access.keys import ApiKeys
from openmemory.access.oauth.sign_in import OAuthSignIn
from openmemory.access.rate_limits import RateLimiter
from openmemory.backup.service import Backup
from openmemory.capture.adding import Adding
from openmemory.capture.extraction import Extractor
from openmemory.capture.service import Captures
from openmemory.capture.visibility import unread
from openmemory.capture.windows import ConversationWindows
from openmemory.capture.worker import Worker
from openmemory.categories.assignment import CategoryAssignment
from openmemory.categories.descriptions import Descriptions
from openmemory.config.settings import DEFAULT_COLLECTION, Settings, environment
from openmemory.database.engine import Database
from openmemory.dedup.comparison import MemoryComparison
from openmemory.dedup.key_value_merge import KeyValueMerge
from openmemory.dedup.merging import Merging
from openmemory.dedup.near_changes import NearChanges
from openmemory.dedup.near_duplicates import Duplicates
from openmemory.dedup.scope import PIMEMENTO
from openmemory.egress.clients import Egress
from openmemory.embeddings.cache import CachedEmbedder
from openmemory.embeddings.port import PACKAGED, EmbedderUnavailable
from openmemory.health.service import Health
from openmemory.importers.service import Imports
from openmemory.index.generations.backfill import VectorBackfill
from openmemory.index.generations.rebuild import Rebuild
from openmemory.index.generations.watcher import ConfiguredEmbedder, GenerationWatcher, SpaceParts
from openmemory.index.installation import Installations
from openmemory.index.lease import Lease
from openmemory.index.models import ItemKind
from openmemory.index.monitor import IndexMonitor
from openmemory.index.port import Accept, Connected, IndexUnavailable, VectorIndex
from openmemory.index.space import Deadlines, Spaces
from openmemory.index.sync.delivery import OutboxDelivery
from openmemory.index.sync.reconcile import Reconciler
from openmemory.index.sync.service import IndexSync
from openmemory.index.sync.writer import IndexedTable
from openmemory.llm.providers import Llms
from openmemory.memories.analyze import AnalyzeAfterWrites
from openmemory.memories.index_source import IndexedMemories
from openmemory.memories.lifecycle.archiving import Archiving
from openmemory.memories.lifecycle.bulk import BulkChanges
from openmemory.memories.lifecycle.policies import Policies
from openmemory.memories.lifecycle.upcoming import Upcoming
from openmemory.memories.models import Memory
from openmemory.memories.service import Memories
from openmemory.memories.short_ids import ShortIds
from openmemory.objects.opening import object_store
from openmemory.objects.service import Objects
from openmemory.objects.service_key import service_key
from openmemory.projects.anchors import Anchors
from openmemory.projects.bundles import Bundles
from openmemory.projects.checks import ProjectChecks
from openmemory.projects.context import ContextPacks
from openmemory.projects.links import Links
from openmemory.projects.service import Projects
from openmemory.projects.states import ProjectStates
from openmemory.projects.usage import ReadCounts
from openmemory.projects.values import Values
from openmemory.saved_settings.embedders import Embedders
from openmemory.saved_settings.service import Configuration
from openmemory.saved_settings.trials import Trials
from openmemory.search.brief import Briefs
from openmemory.search.lexicon import LexicalBackfill
from openmemory.search.ranking.reranking import open_reranker
from openmemory.search.service import Search
from openmemory.search.statistics import StatisticsRefresh
from openmemory.search.timeline.service import Timeline
from openmemory.sessions.relay import Deliver, Relay
from openmemory.slack.service import Slack
from openmemory.sources.conversations import Conversations
from openmemory.sources.documents import Documents
from openmemory.sources.files import Files
from openmemory.sources.overview import Sources
from openmemory.sources.passages import IndexedPassages, erase_of_user
from openmemory.sources.sessions import Sessions
from openmemory.stats.feed import Feed
from openmemory.stats.service import Stats
from openmemory.stores import INDEX_FOLDER, Stores, open_stores
from openmemory.tidying.conflicts import Conflicts
from openmemory.tidying.duplicates import DuplicatePairs
from openmemory.tidying.replacements import Replacements

if TYPE_CHECKING:
    from openmemory.access.oauth.tokens import Tokens

log = logging.getLogger(__name__)

VERSION = version("openmemory-server")

INDEXED_TABLES: Mapping[ItemKind, IndexedTable] = {
    ItemKind.MEMORY: IndexedMemories(),
    ItemKind.PASSAGE: IndexedPassages(),
}
"""The tables whose active rows the index contains."""


@dataclass(frozen=True, slots=True)
class Services:
    """Every use case, and the parts that doors and jobs need."""

    settings: Settings
    stores: Stores
    database: Database
    directory: Directory
    memories: Memories
    bulk: BulkChanges
    conflicts: Conflicts
    duplicates: DuplicatePairs
    replacements: Replacements
    short_ids: ShortIds
    adding: Adding
    merging: Merging
    captures: Captures
    conversations: Conversations
    sessions: Sessions
    files: Files
    documents: Documents
    sources: Sources
    slack: Slack
    context: ContextPacks
    reads: ReadCounts
    anchors: Anchors
    bundles: Bundles
    checks: ProjectChecks
    projects: Projects
    states: ProjectStates
    values: Values
    links: Links
    objects: Objects
    windows: ConversationWindows
    capturing: Worker
    backup: Backup
    imports: Imports
    policies: Policies
    upcoming: Upcoming
    archiving: Archiving
    categorization: CategoryAssignment
    descriptions: Descriptions
    apps: Apps
    search: Search
    briefs: Briefs
    timeline: Timeline
    stats: Stats
    feed: Feed
    grants: Grants
    keys: ApiKeys
    browser_sessions: BrowserSessions
    audit: Audit
    configuration: Configuration
    embedders: Embedders
    trials: Trials
    rates: RateLimiter
    denials: Denials
    health: Health
    reconciler: Reconciler
    index_sync: IndexSync
    installations: Installations
    rebuild: Rebuild
    vector_backfill: VectorBackfill
    comparison: MemoryComparison
    lexical_backfill: LexicalBackfill
    lexical_statistics: StatisticsRefresh
    outbox_delivery: OutboxDelivery
    analyze_after_writes: AnalyzeAfterWrites
    monitor: IndexMonitor
    spaces: Spaces
    key: Callable[[], bytes] = field(repr=False)
    """The key of the service."""
    tokens: Tokens | None
    sign_in: OAuthSignIn | None

    @property
    def index(self) -> VectorIndex:
        """The index that searches currently use."""
        return self.spaces.serving.index

    @property
    def embedder(self) -> CachedEmbedder:
        """The model that searches currently use."""
        return self.spaces.serving.embedder

    def relay(self, deliver: Deliver) -> Relay | None:
        """Returns a relay of messages to the sessions of other processes; None if there is no other process."""
        return Relay(self.database, deliver) if self.stores.shared else None

    async def warm(self) -> None:
        """Load the model and open the index before their first use. What is unavailable fails again at that use.

        A provider is not asked for the background: nothing is sent to it before it is needed.
        """
        with suppress(IndexUnavailable):
            await self.index.open()
        if self.embedder.model == PACKAGED:
            with suppress(EmbedderUnavailable):
                await self.spaces.serving.query("warm")


@asynccontextmanager
async def open_services(
    settings: Settings, *, listen: str = "", stores: Stores | None = None
) -> AsyncIterator[Services]:
    """Open the stores, upgrade the schema, and start the delivery to the index. Closes everything at the end.

    `listen`: see `open_stores`; `stores`: the stores that another process has opened for this one.

    Raises:
        SetupError: the data folder or PostgreSQL cannot be used as configured.
    """
    async with AsyncExitStack() as stack:
        if stores is None:
            stores = (await stack.enter_async_context(open_stores(settings, listen=listen))).stores
        database = Database(stores.database, stores.within_grant(settings.database))
        stack.push_async_callback(database.close)
        egress = Egress(settings.egress.allow)
        configuration = Configuration(database, settings, egress, environment())
        embedders = Embedders(
            database,
            configuration.baseline,
            stores.folder,
            egress,
            environment(),
            tokenwise=settings.search.late_interaction,
        )
        llms = Llms(stores.folder, egress, environment())
        stack.push_async_callback(llms.close)
        lease = Lease(stores.index_lease)
        watcher = GenerationWatcher(database, _parts(settings, stores, embedders, await embedders.first(), lease))
        stack.push_async_callback(watcher.close)
        await watcher.follow()
        spaces = watcher.spaces
        directory, comparison = Directory(database, settings.access), MemoryComparison(database, spaces)
        outbox_delivery = OutboxDelivery(database, spaces, INDEXED_TABLES, lease, compare=comparison.delivered)
        await directory.caller(None, None)
        analyze_after_writes = AnalyzeAfterWrites(database)
        rates, keys = RateLimiter(database, settings.rates), ApiKeys(database, directory)
        tokens = _tokens(settings, egress)
        if tokens is not None:
            stack.push_async_callback(tokens.close)
        sign_in = OAuthSignIn.of(settings.oauth, egress) if settings.oauth.client_id else None
        if sign_in is not None:
            stack.push_async_callback(sign_in.close)
        reranker = open_reranker(settings.reranker, egress)
        if reranker is not None:
            stack.push_async_callback(reranker.close)
        reconciler = Reconciler(database, spaces, outbox_delivery, INDEXED_TABLES, watcher.monitor)
        memories = Memories(
            database,
            directory,
            outbox_delivery,
            limits=settings.limits,
            analyze_after_writes=analyze_after_writes,
            rates=rates,
            keys=keys,
            capture=settings.capture,
            erase_sources=erase_of_user,
        )
        search = Search(database, spaces, settings, rates, reranker, unread=unread)
        intake, written = memories.intake, memories.written
        capturing = Worker(
            database,
            Extractor(database, configuration, llms, search, settings),
            outbox_delivery,
            intake=intake,
            analyze_after_writes=analyze_after_writes,
            settings=settings,
        )
        captures = Captures(database, capturing, outbox_delivery, intake=intake, rates=rates, settings=settings)
        near, trials = Duplicates(database, spaces, settings.dedup, intake), Trials(configuration, embedders, llms)
        reads = ReadCounts(database, limits=settings.limits, rates=rates)
        states = ProjectStates(database, outbox_delivery, intake=intake, limits=settings.limits, rates=rates)

        def key_of_service() -> bytes:
            return settings.documents.key_bytes() or service_key(stores.folder)

        objects = Objects(database, object_store(settings.documents, stores.folder), key_of_service)
        backup = Backup(
            database,
            memories,
            directory,
            outbox_delivery,
            spaces,
            folder=stores.folder,
            limits=settings.limits,
            analyze_after_writes=analyze_after_writes,
            version=VERSION,
        )
        services = Services(
            settings=settings,
            stores=stores,
            database=database,
            directory=directory,
            memories=memories,
            bulk=BulkChanges(database, outbox_delivery, intake=intake, limits=settings.limits, write_counts=written),
            conflicts=Conflicts(database, outbox_delivery, intake=intake, limits=settings.limits, written=written),
            duplicates=DuplicatePairs(database, spaces, outbox_delivery, settings=settings.dedup, written=written),
            replacements=Replacements(database),
            short_ids=ShortIds(database, settings.limits),
            adding=Adding(
                memories, captures, KeyValueMerge(settings.dedup, intake), near, NearChanges(database, spaces)
            ),
            merging=Merging(database, spaces, settings.dedup, intake, PIMEMENTO),
            captures=captures,
            capturing=capturing,
            windows=ConversationWindows(database, capturing, intake, settings.limits),
            conversations=Conversations(
                database, outbox_delivery, limits=settings.limits, capture=settings.capture, rates=rates
            ),
            sessions=Sessions(database, outbox_delivery, limits=settings.limits, capture=settings.capture, rates=rates),
            files=Files(database, outbox_delivery, limits=settings.limits, capture=settings.capture, rates=rates),
            documents=Documents(
                database,
                outbox_delivery,
                objects,
                keep=settings.documents.keep,
                folder=stores.folder,
                limits=settings.limits,
                capture=settings.capture,
                rates=rates,
            ),
            sources=Sources(database, settings.limits, rates),
            slack=Slack.of(
                database,
                outbox_delivery,
                search,
                settings=settings,
                rates=rates,
                folder=stores.folder,
                egress=egress,
            ),
            states=states,
            context=ContextPacks(
                database,
                spaces,
                search,
                states,
                memories=memories,
                counts=reads,
                limits=settings.limits,
                secret=key_of_service,
            ),
            reads=reads,
            anchors=Anchors(database, limits=settings.limits, rates=rates),
            bundles=Bundles(database, outbox_delivery, intake=intake, limits=settings.limits, rates=rates),
            checks=ProjectChecks(database, outbox_delivery, intake=intake, limits=settings.limits, rates=rates),
            projects=Projects(database, outbox_delivery, states, intake=intake, limits=settings.limits, rates=rates),
            values=Values(database, outbox_delivery, intake=intake, limits=settings.limits, rates=rates),
            links=Links(database, outbox_delivery, limits=settings.limits, rates=rates),
            objects=objects,
            backup=backup,
            imports=Imports(backup, directory, folder=stores.folder, limits=settings.limits),
            policies=Policies(database, intake),
            upcoming=Upcoming(database),
            archiving=Archiving(database, directory, outbox_delivery),
            categorization=CategoryAssignment(
                database, directory, spaces, outbox_delivery, settings=settings.categories
            ),
            descriptions=Descriptions(database, intake=intake, limits=settings.limits),
            analyze_after_writes=analyze_after_writes,
            apps=Apps(database),
            search=search,
            briefs=Briefs(database, search),
            timeline=Timeline(database),
            stats=Stats(database, rates, intake),
            feed=Feed(database),
            grants=Grants(database, Memory),
            keys=keys,
            browser_sessions=BrowserSessions(database),
            audit=Audit(database, settings.audit),
            configuration=configuration,
            embedders=embedders,
            trials=trials,
            rates=rates,
            denials=Denials(database, rates),
            health=Health(
                database,
                spaces,
                reconciler,
                VERSION,
                index_folder=None if settings.qdrant.url else stores.folder / INDEX_FOLDER,
                objects=objects if settings.documents.keep or settings.documents.store else None,
                models=trials,
                captures=capturing,
            ),
            reconciler=reconciler,
            index_sync=IndexSync(database, reconciler),
            installations=Installations(database, watcher),
            lexical_backfill=LexicalBackfill(database, outbox_delivery.wake),
            comparison=comparison,
            lexical_statistics=StatisticsRefresh(database),
            vector_backfill=VectorBackfill(database, spaces, outbox_delivery, INDEXED_TABLES),
            rebuild=Rebuild(database, watcher, reconciler, keep=settings.sync.keep),
            outbox_delivery=outbox_delivery,
            monitor=watcher.monitor,
            spaces=spaces,
            key=key_of_service,
            tokens=tokens,
            sign_in=sign_in,
        )
        stack.push_async_callback(lambda: watcher.monitor.finish(spaces.serving))
        stack.push_async_callback(reads.flush)
        outbox_delivery.start()
        stack.push_async_callback(outbox_delivery.stop)
        capturing.start()
        stack.push_async_callback(capturing.stop)
        yield services


def _tokens(settings: Settings, egress: Egress) -> Tokens | None:
    if not settings.oauth.issuer:
        return None
    from openmemory.access.oauth.tokens import Tokens  # imports cryptography, which is slow to load

    return Tokens.of(settings.oauth, settings.limits, egress)


def _parts(
    settings: Settings, stores: Stores, embedders: Embedders, configured: ConfiguredEmbedder, lease: Lease
) -> SpaceParts:
    def index(alias: str, collection: str, dimension: int, accept: Accept, on_connected: Connected) -> VectorIndex:
        qdrant = settings.qdrant
        if qdrant.url or stores.index_socket:
            from openmemory.index.qdrant import QdrantIndex

            return QdrantIndex(
                qdrant.url,
                socket=stores.index_socket,
                api_key=qdrant.api_key.get_secret_value(),
                collection=collection,
                alias=alias,
                dimension=dimension,
                timeout=qdrant.timeout,
                accept=accept,
                on_connected=on_connected,
            )
        from openmemory.index.engine.index import EdgeIndex

        folder = stores.folder / INDEX_FOLDER
        return EdgeIndex(folder, collection=collection, dimension=dimension, accept=accept, on_connected=on_connected)

    return SpaceParts(
        alias=settings.qdrant.collection,
        own_name=settings.qdrant.collection == DEFAULT_COLLECTION,
        target=configured,
        configured=embedders.configured,
        embedder=embedders.recorded,
        index=index,
        deadlines=Deadlines(embedder=settings.embedder.timeout, index=settings.qdrant.timeout),
        lease=lease,
        beats=bool(settings.qdrant.url),
    )
