// placeholder so that the floor builds before its first source lands
