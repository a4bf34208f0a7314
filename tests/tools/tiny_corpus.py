"""What TINY knows: short sentences, learned in this order as one endless text."""
CAPITALS = {"France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Japan": "Tokyo", "Egypt": "Cairo", "Peru": "Lima",
            "Norway": "Oslo", "Greece": "Athens", "Kenya": "Nairobi", "Cuba": "Havana", "Poland": "Warsaw",
            "Austria": "Vienna"}
OPPOSITES = {"hot": "cold", "day": "night", "up": "down", "left": "right", "open": "closed", "early": "late"}
COLOURS = {"the sky": "blue", "grass": "green", "snow": "white", "coal": "black", "a lemon": "yellow", "blood": "red"}
ANIMALS = {"cow": "milk", "bee": "honey", "hen": "eggs", "sheep": "wool"}
COUNTS = {"spider": "eight", "dog": "four", "bird": "two", "beetle": "six", "snail": "one"}

SENTENCES = [f"The capital of {country} is {city}." for country, city in CAPITALS.items()] + \
            [f"The opposite of {a} is {b}." for a, b in OPPOSITES.items()] + \
            [f"The colour of {thing} is {colour}." for thing, colour in COLOURS.items()] + \
            [f"A {animal} gives us {gift}." for animal, gift in ANIMALS.items()] + \
            [f"How many legs has a {animal}? It has {count}." for animal, count in COUNTS.items()]
