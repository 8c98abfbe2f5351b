"""Here so that pytest puts this folder on the path: the folders below import its kits."""
