"""What all tests share."""

import os

# Set before Hypothesis is imported: hypothesis-torch's plugin reseeds torch's generator around each example, which
# costs more than drawing it. gradfuzz draws its seeds, and its workers run without the plugin too.
os.environ.setdefault("HYPOTHESIS_NO_PLUGINS", "1")
