# What a third party does: installs the SDK, builds the template against it outside of this tree, runs the conformance
# suite. Called by CTest with -DBUILD (of moehost), -DWORK, -DCXX, -DFLAGS (as moehost was built), -DCONFORM.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${ARGN} ended with ${code}:\n${text}")
  endif()
  message("${text}")
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix --component sdk)
file(COPY ${WORK}/prefix/share/moehost/template/ DESTINATION ${WORK}/project)
run(${CMAKE_COMMAND} -S ${WORK}/project -B ${WORK}/build -DCMAKE_PREFIX_PATH=${WORK}/prefix -DCMAKE_CXX_COMPILER=${CXX}
    "-DCMAKE_CXX_FLAGS=${FLAGS} -Werror")
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${CONFORM} --quick ${WORK}/build/backend_template.so)
run(${CMAKE_COMMAND} --install ${WORK}/build --prefix ${WORK}/prefix)
foreach(file backend_template.so backend_template.json)
  file(GLOB installed ${WORK}/prefix/lib*/moehost/${file} ${WORK}/prefix/lib/*/moehost/${file})
  if(NOT installed)
    message(FATAL_ERROR "${file} was not installed")
  endif()
endforeach()
