"""What proves a provider right: one suite for every store, ours or a stranger's.

class TestMyProvider(ProviderConformance):
def open(self, path: Path) -> Store:
return MyStore(path / "store")
"""

from __future__ import annotations

from holdfast.testing.conformance.provider_activities import (
    ProviderActivities,
    ProviderCancellation,
    ProviderOwners,
    ProviderTags,
)
from holdfast.testing.conformance.provider_crash import ProviderCrashes, ProviderProcesses, ProviderReopening
from holdfast.testing.conformance.provider_extras import (
    ProviderDecisions,
    ProviderHistories,
    ProviderPublished,
    ProviderSessions,
    ProviderVersions,
)
from holdfast.testing.conformance.provider_fields import ProviderFields, ProviderParameters
from holdfast.testing.conformance.provider_input import (
    ProviderBadInput,
    ProviderIds,
)
from holdfast.testing.conformance.provider_management import (
    ProviderDeletion,
    ProviderLists,
    ProviderPruning,
    ProviderTrees,
)
from holdfast.testing.conformance.provider_rewinding import (
    ProviderFails,
    ProviderForks,
    ProviderImports,
    ProviderResets,
)
from holdfast.testing.conformance.provider_starts import ProviderStarts, ProviderTelling
from holdfast.testing.conformance.provider_turns import (
    ProviderAck,
    ProviderFetch,
    ProviderGivingBack,
    ProviderLocks,
    ProviderOrder,
    ProviderOrphans,
)
from holdfast.testing.conformance.provider_upkeep import ProviderRetention, ProviderSchedules


class ProviderConformance(
    ProviderCrashes,
    ProviderReopening,
    ProviderProcesses,
    ProviderActivities,
    ProviderCancellation,
    ProviderOwners,
    ProviderTags,
    ProviderDecisions,
    ProviderHistories,
    ProviderPublished,
    ProviderSessions,
    ProviderVersions,
    ProviderBadInput,
    ProviderFields,
    ProviderParameters,
    ProviderIds,
    ProviderDeletion,
    ProviderLists,
    ProviderPruning,
    ProviderRetention,
    ProviderSchedules,
    ProviderTrees,
    ProviderResets,
    ProviderForks,
    ProviderFails,
    ProviderImports,
    ProviderStarts,
    ProviderTelling,
    ProviderAck,
    ProviderFetch,
    ProviderGivingBack,
    ProviderLocks,
    ProviderOrder,
    ProviderOrphans,
):
    """Every topic."""
