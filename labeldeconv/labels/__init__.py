"""Pseudo, hop and inverse labels. Labels never see encoders."""
