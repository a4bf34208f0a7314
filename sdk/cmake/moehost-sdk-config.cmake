# find_package(moehost-sdk): the target moehost::sdk (headers) and moehost_add_plugin.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include(${CMAKE_CURRENT_LIST_DIR}/moehost-sdk-targets.cmake)
include(GNUInstallDirs)

# moehost_add_plugin(ID SOURCES...): the shared object ID.so with one exported symbol (plugin.map beside the
# CMakeLists.txt sees to it), its manifest ID.json beside it, and a rule that installs both to lib/moehost.
function(moehost_add_plugin id)
  add_library(${id} MODULE ${ARGN})
  target_link_libraries(${id} PRIVATE moehost::sdk Threads::Threads)
  target_compile_features(${id} PRIVATE cxx_std_17)
  target_link_options(${id} PRIVATE -Wl,-z,nodelete -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/plugin.map)
  set_target_properties(${id} PROPERTIES PREFIX "" CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    CXX_EXTENSIONS OFF LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/plugin.map)
  configure_file(${id}.json ${id}.json COPYONLY)
  install(TARGETS ${id} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/moehost)
  install(FILES ${id}.json DESTINATION ${CMAKE_INSTALL_LIBDIR}/moehost)
endfunction()
