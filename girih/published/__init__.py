"""What papers and experts do, to compare with: girih's searches and tables of names reach it, and import none of it."""
