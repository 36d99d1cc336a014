"""The any-order interpreter: no clock, a chooser decides who moves next. Read `anyorder` first, then `replay`."""
