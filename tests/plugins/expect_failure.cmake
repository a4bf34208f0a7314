# cmake -DTOOL=... -DPLUGIN=... -DREASON=REGEX -P expect_failure.cmake
# Passes when moehost-conform fails on the plugin, and one of the reasons that it prints matches.
execute_process(COMMAND ${TOOL} ${PLUGIN} --quick OUTPUT_VARIABLE output RESULT_VARIABLE status)
message("${output}")
if(NOT status EQUAL 1)
  message(FATAL_ERROR "moehost-conform ended with ${status}, not 1")
endif()
if(NOT output MATCHES "FAILED  [^\n]*${REASON}")
  message(FATAL_ERROR "no failed case names the fault: ${REASON}")
endif()
