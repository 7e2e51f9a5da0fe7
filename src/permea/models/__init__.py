"""One model each: data in, an image of any point and its distance to that image out."""
