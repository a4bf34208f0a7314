/* A shared object that is no plugin: it exports nothing. */
int moehost_test_nothing(void);
int moehost_test_nothing(void) { return 0; }
