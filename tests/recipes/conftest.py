import pytest
from running import REFERENCE, trained


@pytest.fixture(scope="session")
def straight(tmp_path_factory):
    """A run on a reference problem from beginning to end."""
    folder = tmp_path_factory.mktemp("straight")
    return folder, trained(folder, *REFERENCE)
