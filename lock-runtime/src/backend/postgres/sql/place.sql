-- Which table of which database of which server the locks are in.
SELECT {place}
