"""DNN-occu's network: its data set, training and tables."""
