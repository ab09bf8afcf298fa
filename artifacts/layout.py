"""The fixed names inside an artifact directory. Knows nothing of their contents."""

MANIFEST_FILE = "artifact.json"
PROFILE_FILE = "profile.json"
BUILD_FILE = "build.json"

UNLISTED_FILES = frozenset({MANIFEST_FILE, PROFILE_FILE, BUILD_FILE})
"""The manifest itself, and the files outside the identity."""

FOLDERS = ("tokenizer", "weights", "program", "targets")
"""Where the files that the manifest lists may lie."""
