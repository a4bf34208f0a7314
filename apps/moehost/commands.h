// The commands of the program, one file each (command_NAME.cpp). Floor 6.
#pragma once
#include "apps/moehost/command_line.h"

namespace moehost {

Command serve_command();
Command run_command();
Command plan_command();
Command check_command();
Command devices_command();
Command inspect_command();
Command logits_command();
Command tokenize_command();
Command convert_command();

}  // namespace moehost
