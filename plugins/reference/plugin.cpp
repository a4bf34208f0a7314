// backend_reference: the plugin's one exported symbol.
#include "backend.h"

MH_PLUGIN(reference::Backend)
