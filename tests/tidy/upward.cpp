// A call from the lowest floor up to the engine. It compiles, and must link only with moehost_engine.
#include "core/engine/engine.h"

int main() { return moehost::Engine::plan({}).ok() ? 0 : 1; }
